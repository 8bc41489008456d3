// All screens: their routes, and the items of the navigation.

import { Group } from "./screens/group.js";
import { Groups } from "./screens/groups.js";
import { Inbox } from "./screens/inbox.js";

export const NAVIGATION = [
  { label: "Inbox", icon: "inbox", key: "I", segments: ["inbox"] },
  { label: "Groups", icon: "groups", key: "G", segments: ["groups"] },
];

/** section: the first segment of the navigation item to which a screen belongs. */
export const SCREENS = [
  { pattern: "inbox", section: "inbox", component: Inbox },
  { pattern: "groups", section: "groups", component: Groups },
  { pattern: "groups/:group", section: "groups", component: Group },
];
