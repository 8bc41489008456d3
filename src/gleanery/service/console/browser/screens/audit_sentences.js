// Entries of the audit log as sentences.

import { html } from "../vendor/preact.js";
import { plural } from "../format.js";
import { href } from "../router.js";
import { Text } from "../ui/text.js";

/** The actions by name, for the filter. */
export const ACTIONS = {
  sign_in: "Sign in",
  refuse_sign_in: "Refused sign-in",
  sign_out: "Sign out",
  add_review: "Review",
  decide_removal: "Decide about a removal",
  get_cookies: "Read cookies",
  set_cookies: "Store cookies",
  delete_cookies: "Delete cookies",
  get_local_storage: "Read local storage",
  set_local_storage: "Store local storage",
  delete_local_storage: "Delete local storage",
  export_session: "Export a session",
  import_session: "Import a session",
  delete_session: "Delete a session",
  reveal_value: "Reveal a value",
  acquire_lease: "Lease a session",
  renew_lease: "Renew a lease",
  release_lease: "Return a lease",
  export_outputs: "Download outputs",
  create_export_link: "Link to an export",
  set_group: "Change group settings",
  set_monitors: "Change rules of monitors",
  set_alert: "Change an alert",
  create_webhook: "Create a webhook",
  set_webhook: "Change a webhook",
  enable_webhook: "Enable a webhook",
  rotate_webhook_secret: "Rotate the secret of a webhook",
  test_webhook: "Test a webhook",
  redeliver: "Send an event again",
  delete_webhook: "Delete a webhook",
  create_token: "Create a token",
  revoke_token: "Revoke a token",
  create_login_link: "Create a login link",
  rename_organization: "Rename the organization",
  delete_organization: "Delete the organization",
  rotate_keys: "Rotate the secret key",
  forget_keys: "Forget a secret key",
  restore: "Restore a backup",
};

const REVIEWS = {
  approved: "approved",
  changes_requested: "requested changes in",
  rejected: "rejected",
  in_review: "started to review",
  pending: "reset the review of",
};
const REASONS = {
  expired_token: "the token had expired",
  revoked_token: "the token was revoked",
  expired_link: "the login link had expired",
};

const strong = (text) => html`<strong><${Text}>${text}<//></strong>`;

export const nameOf = (id, names) => names[id] ?? `Token ${id}`;

const token = (about, names) => html`token ${strong(names[about.token_id] ?? about.token_id)}`;

function domains(about) {
  if (!about.domains?.length) return about.for_group !== undefined ? " of a group" : "";
  const [first, ...rest] = about.domains;
  return html` of ${strong(first)}${rest.length > 0 && ` and ${plural(rest.length, "other domain")}`}${about.profile && html`, profile ${strong(about.profile)}`}`;
}

const records = (verb, noun, nouns) => (about) => html`${verb} ${plural(about.records ?? 0, noun, nouns)}${domains(about)}`;
const cookies = (verb) => records(verb, "cookie");
const entries = (verb) => records(verb, "local-storage entry", "local-storage entries");
const webhook = (verb) => ({ webhook_id: id }) => html`${verb} ${id ? html`<a href=${href(["webhooks", id])}>webhook ${id.slice(0, 8)}</a>` : "a webhook"}`;
const monitors = (group) => html`<a href=${href(["groups", group, "monitors"])}><${Text}>${group}<//></a>`;
const ALERTS = { acknowledged: "acknowledged", muted_until: "muted", normal: "accepted the level of" };
const lease = (verb) => (about) => html`${verb}${domains(about)}`;

function review(about) {
  const outputs = about.outputs !== undefined && `${plural(about.outputs, "output")} of `;
  return html`${REVIEWS[about.status] ?? "reviewed"} ${outputs}job ${strong(about.job_id)} of ${strong(about.group_id)}`;
}

function signOut(about) {
  if (about.everywhere) return "signed out everywhere";
  return about.of_person ? html`ended the session of ${strong(about.of_person)}` : "signed out";
}

const FORMATS = { csv: "CSV", jsonl: "JSON lines", parquet: "Parquet" };
const asFormat = ({ format }) => format && ` as ${FORMATS[format] ?? format}`;
const withFormat = (verb) => (about) => html`${verb} ${plural(about.records ?? 0, "record")}${domains(about)}${asFormat(about)}`;

const VERBS = {
  sign_in: () => "signed in",
  refuse_sign_in: (about) => `could not sign in: ${REASONS[about.reason] ?? "refused"}`,
  sign_out: signOut,
  add_review: review,
  decide_removal: (about) => html`decided to ${about.decision ?? "remove or keep"} missing outputs of ${strong(about.group_id)}`,
  get_cookies: cookies("read"),
  set_cookies: cookies("stored"),
  delete_cookies: cookies("deleted"),
  get_local_storage: entries("read"),
  set_local_storage: entries("stored"),
  delete_local_storage: entries("deleted"),
  export_session: withFormat("exported"),
  import_session: (about) => withFormat(about.dry_run ? "previewed an import of" : "imported")(about),
  delete_session: records("deleted a session with", "record"),
  reveal_value: (about) => html`revealed a value${domains(about)}`,
  acquire_lease: lease("leased the session"),
  renew_lease: lease("renewed the lease of the session"),
  release_lease: lease("returned the lease of the session"),
  export_outputs: (about) => html`downloaded ${strong(about.group_id)}${asFormat(about)}`,
  create_export_link: (about) => html`created a link to an export of ${strong(about.group_id)}${asFormat(about)}`,
  set_group: (about) => html`changed settings of ${strong(about.group_id)}: ${(about.settings ?? []).join(", ").replaceAll("_", " ")}`,
  set_monitors: (about) => html`changed the rules of ${monitors(about.group_id)}`,
  set_alert: (about) => html`${(about.settings ?? []).flatMap((name) => ALERTS[name] ?? []).join(" and ") || "changed"} an alert of ${monitors(about.group_id)}`,
  create_webhook: webhook("created"),
  set_webhook: webhook("changed"),
  enable_webhook: webhook("enabled"),
  rotate_webhook_secret: webhook("rotated the secret of"),
  test_webhook: webhook("tested"),
  redeliver: webhook("sent an event again to"),
  delete_webhook: webhook("deleted"),
  create_token: (about, names) => html`created ${token(about, names)} with ${plural(about.scopes?.length ?? 0, "scope")}: ${(about.scopes ?? []).join(", ")}`,
  revoke_token: (about, names) => html`revoked ${token(about, names)}`,
  create_login_link: (about, names) => html`created a login link with ${token(about, names)}${about.of_person && html` for ${strong(about.of_person)}`}`,
  rename_organization: () => "renamed the organization",
  delete_organization: () => "deleted the organization",
  rotate_keys: () => "rotated the secret key",
  forget_keys: () => "removed values whose secret key is lost",
  restore: () => "restored a backup",
};

/** For example: Anna approved job 12 of shop. */
export function Sentence({ entry }) {
  const { about, names } = entry;
  const who = about.person ?? (entry.token_id === null ? "The operator" : nameOf(entry.token_id, names));
  return html`<span class="audit-sentence">${strong(who)} ${VERBS[entry.action]?.(about, names) ?? entry.action}</span>`;
}
