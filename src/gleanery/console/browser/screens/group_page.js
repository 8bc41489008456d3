// The frame that the pages of a group share: its name and its tabs.

import { html } from "../vendor/preact.js";
import { href } from "../router.js";
import { Tabs } from "../ui/controls.js";
import { Page } from "../ui/page.js";

const TABS = { Jobs: [], Outputs: ["outputs"], Fields: ["fields"], Settings: ["settings"] };

/** current: the label of the tab. Other properties go to the page. */
export function GroupPage({ group, current, ...rest }) {
  const tabs = Object.entries(TABS).map(([label, segments]) => ({ label, href: href(["groups", group, ...segments]), isCurrent: label === current }));
  return html`<${Page} title=${group} crumbs=${[["Groups", ["groups"]]]} tabs=${html`<${Tabs} label="Group" tabs=${tabs} />`} ...${rest} />`;
}
