// The frame that the pages of a group share: its name and its tabs. And the display names of groups.

import { html } from "../vendor/preact.js";
import { get, path } from "../api.js";
import { useLoad } from "../load.js";
import { href } from "../router.js";
import { onKeyChange } from "../session_key.js";
import { Tabs } from "../ui/controls.js";
import { Page } from "../ui/page.js";
import { Text } from "../ui/text.js";

const TABS = { Jobs: [], Outputs: ["outputs"], Runs: ["runs"], Fields: ["fields"], Monitors: ["monitors"], Settings: ["settings"] };
const names = new Map();
onKeyChange(() => names.clear()); // another organization may have a group of the same id

/** Returns the display name of a group, or its id. name: what was loaded, which is kept for other screens; it may be null. */
export function nameGroup(group, name) {
  if (name !== undefined) names.set(group, name ?? group);
  return names.get(group) ?? group;
}

/** The same for a screen that does not load the group. */
export function useGroupName(group) {
  const load = async (signal) => (names.has(group) ? undefined : (await get(path`v1/groups/${group}`, { limit: 1 }, signal)).display_name);
  return nameGroup(group, useLoad(load, [group]).data);
}

/** current: the label of the tab. name: the display name of the group, when it is loaded. Other properties go to the page. */
export function GroupPage({ group, name, current, note, ...rest }) {
  const title = nameGroup(group, name);
  const tabs = Object.entries(TABS).map(([label, segments]) => ({ label, href: href(["groups", group, ...segments]), isCurrent: label === current }));
  const about = html`<span class="groups-numbers">${title !== group && html`<code><${Text}>${group}<//></code>`}${note}</span>`;
  return html`<${Page} title=${title} crumbs=${[["Groups", ["groups"]]]} note=${(title !== group || note) && about} tabs=${html`<${Tabs} label="Group" tabs=${tabs} />`} ...${rest} />`;
}
