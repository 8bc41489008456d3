// One revealed value: shown for 30 seconds, and never longer than the tab is visible.

import { html, useCallback, useEffect, useRef, useState } from "../vendor/preact.js";
import { post } from "../api.js";
import { number } from "../format.js";
import { useAction } from "../load.js";
import { CopyButton } from "../ui/copy.js";
import { Text } from "../ui/text.js";

const SHOWN_FOR = 30_000;
const COPIED = "Copied. Copy something else afterwards, because the clipboard keeps it.";

/** Returns the shown value, run(kind, id), hide() and the error. A new value replaces the last one. */
export function useReveal() {
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
export function Revealed({ shown, name }) {
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
