// All screens: their routes, and the items of the navigation.

import { Groups } from "./screens/groups.js";
import { Outputs } from "./screens/outputs.js";

export const NAVIGATION = [
  { label: "Groups", icon: "groups", key: "G", segments: ["groups"] },
];

/** section: the first segment of the navigation item to which a screen belongs. */
export const SCREENS = [
  { pattern: "groups", section: "groups", component: Groups },
  { pattern: "groups/:group/outputs", section: "groups", component: Outputs },
];
