// All screens: their routes, and the items of the navigation.

import { Access } from "./screens/access.js";
import { Audit } from "./screens/audit.js";
import { Fields } from "./screens/fields.js";
import { Group } from "./screens/group.js";
import { GroupSettings } from "./screens/group_settings.js";
import { Groups } from "./screens/groups.js";
import { Inbox } from "./screens/inbox.js";
import { Monitors } from "./screens/monitors.js";
import { OutputScreen } from "./screens/output_detail.js";
import { Outputs } from "./screens/outputs.js";
import { Review } from "./screens/review.js";
import { Run } from "./screens/run.js";
import { Runs } from "./screens/runs.js";
import { Sessions } from "./screens/sessions.js";
import { SessionDetail } from "./screens/sessions_detail.js";
import { Webhooks } from "./screens/webhooks.js";
import { WebhookDetail } from "./screens/webhooks_detail.js";

export const NAVIGATION = [
  { label: "Inbox", icon: "inbox", key: "I", segments: ["inbox"] },
  { label: "Groups", icon: "groups", key: "G", segments: ["groups"] },
  { label: "Sessions", icon: "sessions", key: "S", segments: ["sessions"] },
  { label: "Webhooks", icon: "webhooks", key: "W", segments: ["webhooks"] },
  { label: "Access", icon: "access", key: "T", segments: ["access"] },
  { label: "Audit", icon: "audit", key: "L", segments: ["audit"] },
];

/** section: the first segment of the navigation item to which a screen belongs. */
export const SCREENS = [
  { pattern: "access", section: "access", component: Access },
  { pattern: "audit", section: "audit", component: Audit },
  { pattern: "groups", section: "groups", component: Groups },
  { pattern: "groups/:group", section: "groups", component: Group },
  { pattern: "groups/:group/fields", section: "groups", component: Fields },
  { pattern: "groups/:group/monitors", section: "groups", component: Monitors },
  { pattern: "groups/:group/outputs", section: "groups", component: Outputs },
  { pattern: "groups/:group/outputs/:output", section: "groups", component: OutputScreen },
  { pattern: "groups/:group/review/:job", section: "inbox", component: Review },
  { pattern: "groups/:group/runs", section: "groups", component: Runs },
  { pattern: "groups/:group/runs/:run", section: "groups", component: Run },
  { pattern: "groups/:group/settings", section: "groups", component: GroupSettings },
  { pattern: "inbox", section: "inbox", component: Inbox },
  { pattern: "sessions", section: "sessions", component: Sessions },
  { pattern: "sessions/:domain", section: "sessions", component: SessionDetail },
  { pattern: "webhooks", section: "webhooks", component: Webhooks },
  { pattern: "webhooks/:webhook", section: "webhooks", component: WebhookDetail },
];
