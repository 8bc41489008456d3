// The preview of an import: what would be stored, and where, without values.

import { html } from "../vendor/preact.js";
import { number, plural } from "../format.js";
import { Button, Checkbox, TextField } from "../ui/controls.js";
import { Loading, Problem } from "../ui/feedback.js";
import { Icon } from "../ui/icons.js";
import { Text, Time } from "../ui/text.js";
import { Losses } from "./sessions_export.js";
import { FORMATS } from "./sessions_formats.js";

const MAX_HOSTS = 50;
const CHANGES = [["created", "New"], ["updated", "Changed"], ["unchanged", "Unchanged"], ["deleted", "Deleted"]];

export function Preview({ source, options, setOptions, preview, error, onBack }) {
  const set = (name) => (value) => setOptions({ ...options, [name]: value });
  const problem = preview.error;
  const missingUrl = problem?.of?.("url");
  const needsUrl = missingUrl || options.url || FORMATS[preview.data?.result.format]?.needsUrl;
  return html`<div class="sessions-source">
      <${Icon} name="file" /><strong><${Text}>${source.label}<//></strong><span class="muted">${source.size}</span>
      <${Button} small kind="quiet" onClick=${onBack}>Use another<//>
    </div>
    <div class="sessions-options">
      <${TextField} label="Profile" hint="The account at the site, if there are several." placeholder="default" maxlength="200"
        value=${options.profile} onValue=${set("profile")} error=${problem?.of?.("profile")} />
      ${needsUrl && html`<${TextField} label="Page" hint="The cookies of a request belong to this page." type="url" placeholder="https://www.shop.example/"
        value=${options.url} onValue=${set("url")} error=${missingUrl && options.url ? missingUrl : undefined} />`}
    </div>
    <${Checkbox} label="Delete the other records of these hosts" checked=${options.replace} onValue=${set("replace")} />
    ${problem && !preview.isLoading && html`<${Problem} error=${missingUrl && !options.url ? NEEDS_PAGE : problem} onRetry=${preview.reload} />`}
    <${Problem} error=${error} />
    ${preview.data ? html`<${Result} result=${preview.data.result} isLoading=${preview.isLoading} />` : preview.isLoading && html`<${Loading} label="Reading" />`}`;
}

const NEEDS_PAGE = { message: "These cookies do not say which site they are for. Enter the address of the page." };

function Result({ result, isLoading }) {
  const { cookies, local_storage: entries, records, losses } = result;
  const kept = records.filter((record) => record.change !== "deleted");
  const expired = kept.filter((record) => record.expires && new Date(record.expires) <= Date.now()).length;
  return html`<section class=${`sessions-result ${isLoading ? "stale" : ""}`} aria-label="Preview" aria-busy=${isLoading ? "true" : "false"}>
    <p><strong>${FORMATS[result.format]?.title ?? result.format}</strong>:
      ${" "}${plural(kept.filter((one) => one.kind === "cookie").length, "cookie")} and
      ${" "}${plural(kept.filter((one) => one.kind === "local_storage").length, "local-storage entry", "local-storage entries")}
    </p>
    <dl class="sessions-counts">
      ${CHANGES.map(([name, label]) => {
        const amount = cookies[name] + entries[name];
        return html`<div key=${name} class=${amount ? name : "zero"}><dt>${label}</dt><dd>${number(amount)}</dd></div>`;
      })}
    </dl>
    ${!records.length && html`<p class="problem">The document has no cookies and no local storage.</p>`}
    ${expired > 0 && html`<p class="sessions-warning">${plural(expired, "record has", "records have")} expired. Scrapers do not get expired records.</p>`}
    <${Hosts} records=${kept} />
    <${Losses} losses=${losses} />
  </section>`;
}

function Hosts({ records }) {
  const hosts = [...byHost(records)];
  if (!hosts.length) return null;
  return html`<div class="table-box sessions-hosts"><table aria-label="Hosts">
      <thead><tr><th>Host</th><th class="number">Cookies</th><th class="number">Local storage</th><th>First expiry</th></tr></thead>
      <tbody>
        ${hosts.slice(0, MAX_HOSTS).map(([host, { cookie, local_storage, first }]) => html`<tr key=${host}>
          <td><${Text}>${host}<//></td><td class="number">${number(cookie)}</td><td class="number">${number(local_storage)}</td>
          <td>${first ? html`<${Time} at=${first} />` : html`<span class="muted">none</span>`}</td>
        </tr>`)}
      </tbody>
    </table></div>
    ${hosts.length > MAX_HOSTS && html`<p class="hint">and ${plural(hosts.length - MAX_HOSTS, "more host")}</p>`}`;
}

function byHost(records) {
  const hosts = new Map();
  for (const { domain, kind, expires } of records) {
    const host = domain.replace(/^\./, "");
    const sums = hosts.get(host) ?? { cookie: 0, local_storage: 0, first: null };
    sums[kind] += 1;
    if (expires && (!sums.first || expires < sums.first)) sums.first = expires;
    hosts.set(host, sums);
  }
  return hosts;
}
