// The tabs that all pages of a group share.

import { html } from "../vendor/preact.js";
import { href } from "../router.js";
import { Tabs } from "../ui/controls.js";

const TABS = [
  ["jobs", "Jobs", []],
  ["outputs", "Outputs", ["outputs"]],
  ["fields", "Fields", ["fields"]],
  ["settings", "Settings", ["settings"]],
];

/** current: "jobs", "outputs", "fields" or "settings". */
export function GroupTabs({ group, current }) {
  const tabs = TABS.map(([name, label, rest]) => ({
    label,
    href: href(["groups", group, ...rest]),
    isCurrent: name === current,
  }));
  return html`<${Tabs} label="Group" tabs=${tabs} />`;
}
