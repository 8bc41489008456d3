// The time bar: a scrollbar over all outputs, on which every position is a time.

import { html, useRef, useState } from "../vendor/preact.js";
import { fullTime, toDate } from "../format.js";

const TICKS = 6;
const MINUTE = 60e6, DAY = 86_400e6;
const time = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const seconds = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const month = new Intl.DateTimeFormat("en-GB", { month: "short", year: "numeric" });

/** top and bottom: cursors of the first and the last visible row. onJump(cursor) shows another place. */
export function TimeBar({ newest, oldest, top, bottom, onJump }) {
  const bar = useRef();
  const [dragged, setDragged] = useState(null);
  const [pointed, setPointed] = useState(null);
  const span = Math.max(newest - oldest, 1);
  const at = dragged ?? clamp(top ?? newest, oldest, newest);
  const share = (cursor) => (newest - clamp(cursor, oldest, newest)) / span;
  const jump = (cursor) => onJump(clamp(Math.round(cursor), oldest, newest));
  const point = (event, isDrag) => {
    const box = bar.current.getBoundingClientRect();
    const cursor = newest - clamp((event.clientY - box.top) / box.height, 0, 1) * span;
    setPointed(cursor);
    if (!isDrag) return;
    setDragged(cursor);
    jump(cursor);
  };
  const size = dragged === null && bottom !== undefined ? Math.max(share(bottom) - share(at), 0) : 0;
  return html`<div
    class="outputs-time"
    role="slider"
    tabindex="0"
    aria-label="Time"
    aria-orientation="vertical"
    aria-valuemin=${oldest}
    aria-valuemax=${newest}
    aria-valuenow=${Math.round(at)}
    aria-valuetext=${fullTime(at)}
    onKeyDown=${(event) => pressKey(event, at, span, { newest, oldest }, jump)}
    onPointerDown=${(event) => {
      event.currentTarget.setPointerCapture(event.pointerId);
      point(event, true);
    }}
    onPointerMove=${(event) => point(event, event.currentTarget.hasPointerCapture(event.pointerId))}
    onPointerLeave=${() => setPointed(null)}
    onPointerUp=${() => setDragged(null)}
    onPointerCancel=${() => setDragged(null)}
  >
    <div class="outputs-track" ref=${bar}>
      ${ticks(newest, oldest).map(
        ([cursor, text]) => html`<span key=${cursor} class="outputs-tick" aria-hidden="true" style=${{ top: `${share(cursor) * 100}%` }}>${text}</span>`,
      )}
      <span class="outputs-thumb" style=${{ top: `${share(at) * 100}%`, height: `${size * 100}%` }}></span>
      ${pointed !== null && html`<span class="outputs-moment" style=${{ top: `${share(pointed) * 100}%` }}>${fullTime(pointed)}</span>`}
    </div>
  </div>`;
}

function pressKey(event, at, span, { newest, oldest }, jump) {
  const steps = { ArrowDown: 0.01, ArrowRight: -0.01, ArrowUp: -0.01, ArrowLeft: 0.01, PageDown: 0.1, PageUp: -0.1 };
  const target = { Home: newest, End: oldest }[event.key] ?? (event.key in steps ? at - steps[event.key] * span : null);
  if (target === null) return;
  event.preventDefault();
  event.stopPropagation();
  jump(target);
}

/** Returns positions with labels whose precision fits the span, without repetitions. */
function ticks(newest, oldest) {
  const span = newest - oldest;
  const format = span > 300 * DAY ? month : span > 2 * DAY ? day : span > 10 * MINUTE ? time : seconds;
  const found = [];
  for (let at = 0; at <= TICKS; at++) {
    const cursor = Math.round(newest - (span * at) / TICKS);
    const text = format.format(toDate(cursor));
    if (text !== found.at(-1)?.[1]) found.push([cursor, text]);
  }
  return found;
}

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
