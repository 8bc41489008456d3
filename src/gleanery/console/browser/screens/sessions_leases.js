// Leases: who uses a session now, for how long, and the end of a lease.

import { html, useEffect, useState } from "../vendor/preact.js";
import { get, path, remove } from "../api.js";
import { useLoad } from "../load.js";
import { href } from "../router.js";
import { Panel } from "../shell.js";
import { Badge, Button } from "../ui/controls.js";
import { Confirm } from "../ui/confirm.js";
import { Problem, notify } from "../ui/feedback.js";
import { Text, Time } from "../ui/text.js";

const REFRESH = 15_000;

/** Returns the current leases, each with the time of its end by the clock of this browser. */
export function useLeases() {
  const state = useLoad(async (signal) => {
    const sent = Date.now();
    const leases = await get("v1/sessions/leases", {}, signal);
    return leases.map((lease) => ({ ...lease, ends: sent + lease.seconds * 1000 }));
  }, []);
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => document.hidden || state.reload(), REFRESH);
    return () => clearInterval(timer);
  }, []);
  const current = (state.data ?? []).filter((lease) => lease.ends > now);
  useEffect(() => {
    if (!state.data?.length) return undefined;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [state.data]);
  return { current, now, error: state.error, reload: state.reload };
}

/** Returns the lease that covers a session. A leading dot includes subdomains. */
export function leaseOf(leases, { domain, profile }) {
  return leases.find((lease) => {
    if (lease.profile !== profile) return false;
    return lease.domain === domain || (lease.domain.startsWith(".") && `.${domain}`.endsWith(lease.domain));
  });
}

export function Holder({ lease }) {
  return html`<${Badge} tone="info">${lease.holder ? html`<${Text}>${lease.holder}<//>` : `Token ${lease.token_id}`}<//>`;
}

function left(milliseconds) {
  const seconds = Math.max(0, Math.ceil(milliseconds / 1000));
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

/** The leases as a table; nothing if there are none. */
export function LeasePanel({ leases, canEnd }) {
  const [ending, setEnding] = useState(null);
  if (leases.error) return html`<${Problem} error=${leases.error} onRetry=${leases.reload} />`;
  return html`${leases.current.length > 0 &&
    html`<${Panel} flush title="In use now"><div class="table-box"><table class="cards">
      <thead><tr><th>Host</th><th>Profile</th><th>Holder</th><th>Since</th><th>Ends in</th>${canEnd && html`<th><span class="visually-hidden">Action</span></th>`}</tr></thead>
      <tbody>
        ${leases.current.map((lease) => html`<tr key=${lease.id}>
          <td><a href=${href(["sessions", lease.domain.replace(/^\./, "")], { profile: lease.profile })}><${Text}>${lease.domain}<//></a></td>
          <td data-label="Profile"><${Text}>${lease.profile}<//></td>
          <td data-label="Holder"><${Holder} lease=${lease} /></td>
          <td data-label="Since"><${Time} at=${lease.acquire_date} /></td>
          <td data-label="Ends in"><span class="sessions-clock">${left(lease.ends - leases.now)}</span></td>
          ${canEnd && html`<td class="sessions-end"><${Button} small kind="danger" onClick=${() => setEnding(lease)}>End lease<//></td>`}
        </tr>`)}
      </tbody>
    </table></div><//>`}
    ${ending && html`<${EndLease} lease=${ending} leases=${leases} onClose=${() => setEnding(null)} />`}`;
}

function EndLease({ lease, leases, onClose }) {
  const end = async () => {
    try {
      await remove(path`v1/sessions/leases/${lease.id}`);
    } catch (error) {
      if (error.status !== 404) throw error; // it has ended meanwhile
    }
    leases.reload();
    notify("The lease has ended.");
  };
  return html`<${Confirm} title="End this lease?" label="End lease" action=${end} onClose=${onClose}>
    <p>Another worker can then use <${Text}>${lease.domain}<//>. The holder keeps its copy of the login, but can no longer store changes.</p>
  <//>`;
}
