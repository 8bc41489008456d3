// All screens: their routes, and the items of the navigation.

import { Groups } from "./screens/groups.js";
import { Review } from "./screens/review.js";

export const NAVIGATION = [
  { label: "Groups", icon: "groups", key: "G", segments: ["groups"] },
];

/** section: the first segment of the navigation item to which a screen belongs. */
export const SCREENS = [
  { pattern: "groups/:group/review/:job", section: "inbox", component: Review },
  { pattern: "groups", section: "groups", component: Groups },
];
