// The records of a session as tables without values, and the one value that is revealed.

import { html, useCallback, useEffect, useRef, useState } from "../vendor/preact.js";
import { get, post } from "../api.js";
import { bytes, number } from "../format.js";
import { useAction } from "../load.js";
import { List, usePages } from "../pages.js";
import { Badge, Button } from "../ui/controls.js";
import { CopyButton } from "../ui/copy.js";
import { Problem } from "../ui/feedback.js";
import { Table } from "../ui/records.js";
import { Text, Time, visibleText } from "../ui/text.js";
import { Inline, plain } from "../ui/value.js";
import { SOON } from "./sessions.js";

const KINDS = [
  ["cookies", "Cookies"],
  ["local_storage", "Local storage"],
];
const SHOWN_FOR = 30_000;
const COPIED = "Copied. Copy something else afterwards, because the clipboard keeps it.";

export function Records({ one }) {
  const reveal = useReveal();
  return html`<${Problem} error=${reveal.error} />
    ${KINDS.filter(([kind]) => one[kind] > 0).map(
      ([kind, title]) => html`<${OfKind} key=${kind} ...${{ one, kind, title, reveal }} />`,
    )}
    <p class="hint">Values are hidden. A revealed value is hidden after 30 seconds, and the audit log has your name.</p>`;
}

function OfKind({ one, kind, title, reveal }) {
  const { domain, profile } = one;
  const pages = usePages(
    async (cursor, signal) => {
      const page = await get("console/api/session-records", { domain, profile, kind, cursor }, signal);
      return { items: page.records, next: page.next_cursor };
    },
    [domain, profile, kind],
  );
  return html`<${List} title=${title} pages=${pages}>
    ${(records) => html`<${RecordTable} ...${{ records, kind, title, reveal }} />`}
  <//>`;
}

function RecordTable({ records, kind, title, reveal }) {
  const isCookies = kind === "cookies";
  const isShown = (record) => reveal.shown?.id === record.id && reveal.shown.kind === kind;
  const columns = [
    [isCookies ? "Name" : "Key", (record) => html`<code><${Inline} node=${record.name} /></code><small class="muted"><${Place} record=${record} isCookies=${isCookies} /></small>`, "sessions-name"],
    [isCookies ? "Flags" : "Used by", (record) => html`<${Flags} record=${record} isCookies=${isCookies} />`],
    ["Expires", (record) => html`<${Expires} at=${record.expires} isCookies=${isCookies} />`],
    ["Size", (record) => bytes(record.value_bytes), "number"],
    ["Changed", (record) => html`<${Time} at=${record.update_date} />`],
    ["Value", (record) => html`<${RevealButton} ...${{ record, kind, reveal }} isShown=${isShown(record)} />`],
  ];
  const below = (record) => isShown(record) && html`<${Revealed} shown=${reveal.shown} name=${nameOf(record)} />`;
  return html`<${Table} class="sessions-records" label=${title} columns=${columns} rows=${records} id="id" below=${below} />`;
}

const nameOf = (record) => visibleText(plain(record.name));

function RevealButton({ record, kind, reveal, isShown }) {
  const label = isShown ? "Hide" : "Reveal";
  const change = () => (isShown ? reveal.hide() : reveal.run(kind, record.id));
  return html`<${Button} small icon="eye" aria-label=${`${label} the value of ${nameOf(record)}`} aria-expanded=${isShown} onClick=${change}>${label}<//>`;
}

/** Where a browser sends a cookie, or which pages see an entry. */
function Place({ record, isCookies }) {
  if (!isCookies && record.origin) return html`<${Text}>${record.origin}<//>`;
  return html`<${Text}>${record.domain}<//><${Inline} node=${record.path} />`;
}

function Flags({ record, isCookies }) {
  if (!isCookies) return record.group_id ? html`<${Badge}>Group ${record.group_id}<//>` : html`<span class="muted">every group</span>`;
  const flags = [
    record.secure && ["Secure", "Sent over https only"],
    record.http_only && ["HttpOnly", "Scripts of the page cannot read it"],
    record.same_site && [`SameSite ${record.same_site}`, "When a browser sends it from other sites"],
    record.host_only && ["Host only", "Not sent to subdomains"],
    record.partition_site && ["Partitioned", `Only below ${record.partition_site}`],
  ].filter(Boolean);
  if (!flags.length) return html`<span class="muted">none</span>`;
  return html`<span class="sessions-flags">${flags.map(([label, title]) => html`<${Badge} key=${label} title=${title}>${label}<//>`)}</span>`;
}

function Expires({ at, isCookies }) {
  if (at === null) return html`<span class="muted">${isCookies ? "when the browser closes" : "never"}</span>`;
  const time = html`<${Time} at=${at} />`;
  const left = new Date(at) - Date.now();
  if (left <= 0) return html`<${Badge} tone="bad">expired ${time}<//>`;
  return left < SOON ? html`<${Badge} tone="warn">${time}<//>` : time;
}

/** Returns the shown value, run(kind, id), hide() and the error. A new value replaces the last one. */
function useReveal() {
  const [shown, setShown] = useState(null);
  const round = useRef(0);
  const hide = useCallback(() => {
    round.current += 1; // a response that is still on its way is not shown
    setShown(null);
  }, []);
  const { run, error } = useAction(async (kind, id) => {
    hide();
    const started = round.current;
    const found = await post("console/api/reveal", { kind, id });
    if (started === round.current && !document.hidden) setShown({ kind, id, ...found, until: Date.now() + SHOWN_FOR });
  });
  useEffect(() => {
    if (!shown) return undefined;
    const timer = setTimeout(hide, SHOWN_FOR);
    return () => clearTimeout(timer);
  }, [shown]);
  useEffect(() => {
    const hideIfHidden = () => document.hidden && hide();
    document.addEventListener("visibilitychange", hideIfHidden);
    addEventListener("pagehide", hide);
    return () => {
      document.removeEventListener("visibilitychange", hideIfHidden);
      removeEventListener("pagehide", hide);
      round.current += 1;
    };
  }, []);
  return { shown, run, hide, error };
}

/** The row of a table below its record. */
function Revealed({ shown, name }) {
  return html`<tr class="sessions-revealed"><td colspan="6">
    <div class="sessions-value" tabindex="0" role="region" aria-label=${`Value of ${name}`}><${Text}>${shown.value}<//></div>
    <div class="sessions-tools">
      <span class="hint">Hidden again in <${Countdown} until=${shown.until} /></span>
      ${shown.is_truncated
        ? html`<span class="hint">This is the beginning of ${number(shown.length)} characters. An export has all.</span>`
        : html`<${CopyButton} text=${shown.value} label="the value" done=${COPIED}>Copy<//>`}
    </div>
  </td></tr>`;
}

function Countdown({ until }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return html`<span class="sessions-clock">${Math.max(0, Math.ceil((until - now) / 1000))} s</span>`;
}
