// All screens: their routes, and the items of the navigation.

import { Groups } from "./screens/groups.js";
import { Sessions } from "./screens/sessions.js";
import { SessionDetail } from "./screens/sessions_detail.js";

export const NAVIGATION = [
  { label: "Groups", icon: "groups", key: "G", segments: ["groups"] },
  { label: "Sessions", icon: "sessions", key: "S", segments: ["sessions"] },
];

/** section: the first segment of the navigation item to which a screen belongs. */
export const SCREENS = [
  { pattern: "groups", section: "groups", component: Groups },
  { pattern: "sessions", section: "sessions", component: Sessions },
  { pattern: "sessions/:domain", section: "sessions", component: SessionDetail },
];
