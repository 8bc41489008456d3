// Texts for people: times, numbers and sizes.

// A unit, its seconds, and the number from which the next unit is used.
const UNITS = [["second", 1, 60], ["minute", 60, 60], ["hour", 3600, 24], ["day", 86400, Infinity]];
const MAX_DAYS = 60;
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });
const full = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const count = new Intl.NumberFormat("en");

/** Returns a Date of an ISO text, or of a cursor in microseconds. */
export function toDate(time) {
  if (time instanceof Date) return time;
  return new Date(typeof time === "number" ? time / 1000 : time);
}

/** Returns the time from now in its unit, such as [-3, "day"]. */
function inUnits(time) {
  const seconds = (toDate(time) - Date.now()) / 1000;
  const [unit, size] = UNITS.find(([, size, limit]) => Math.round(Math.abs(seconds) / size) < limit);
  return [Math.round(seconds / size), unit];
}

/** Returns "2 min. ago" or "in 3 days"; a date if that is far away. */
export function ago(time) {
  const [value, unit] = inUnits(time);
  if (unit === "second" && Math.abs(value) < 10) return "just now";
  return Math.abs(value) > MAX_DAYS && unit === "day" ? day.format(toDate(time)) : relative.format(value, unit);
}

/** Returns "20 days": the time since then. */
export function lasting(time) {
  const [value, unit] = inUnits(time);
  return plural(Math.abs(value), unit);
}

/** Returns "3 min 20 s" or "2 h 5 min": the time between two times. */
export function duration(from, to) {
  const seconds = Math.round((toDate(to) - toDate(from)) / 1000);
  const [days, hours, minutes] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  const parts = [[days, "d"], [hours, "h"], [minutes, "min"], [seconds % 60, "s"]];
  const first = parts.findIndex(([value]) => value > 0);
  if (first < 0) return "< 1 s";
  return parts.slice(first, first + 2).filter(([value]) => value > 0).map(([value, unit]) => `${value} ${unit}`).join(" ");
}

export const fullTime = (time) => full.format(toDate(time));
export const dayOf = (time) => day.format(toDate(time));
export const number = (value) => count.format(value);
/** A count of the service that ends at a limit: "1,000+". */
export const atMost = ({ count, has_more: hasMore }) => number(count) + (hasMore ? "+" : "");

export function percent(share) {
  if (share > 0 && share < 0.001) return "< 0.1 %";
  const digits = share === 0 || share === 1 || share === 0.5 ? 0 : 1;
  return `${(share * 100).toFixed(digits).replace(/\.0$/, "")} %`;
}

export function bytes(size) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let at = 0;
  while (size >= 1000 && at < units.length - 1) [size, at] = [size / 1000, at + 1];
  return `${size < 10 && at > 0 ? size.toFixed(1) : Math.round(size)} ${units[at]}`;
}

/** plural(1, "output") is "1 output", plural(2, "output") is "2 outputs". */
export function plural(amount, noun, nouns = noun + "s") {
  return `${number(amount)} ${amount === 1 ? noun : nouns}`;
}
