// Icons as strokes on a grid of 24 by 24.

import { html } from "../vendor/preact.js";

const PATHS = {
  access: "M12.5 16a4.5 4.5 0 1 1-9 0 4.5 4.5 0 0 1 9 0Zm-1.3-3.2L20 4m-3.5 3.5L19 10",
  alert: "M12 9v4m0 3.5v.01M10.3 4.3 2.6 17.5A2 2 0 0 0 4.3 20.5h15.4a2 2 0 0 0 1.7-3L13.7 4.3a2 2 0 0 0-3.4 0Z",
  arrow: "M5 12h14m-6-6 6 6-6 6",
  audit: "M8 3h8l4 4v14H4V3h4Zm0 7h8m-8 4h8m-8 4h5",
  back: "M19 12H5m6-6-6 6 6 6",
  check: "m5 12.5 4.5 4.5L19 7.5",
  close: "m6 6 12 12M18 6 6 18",
  comment: "M4 5h16v11H9l-5 4V5Z",
  copy: "M9 9h11v11H9V9Zm-4 6H4V4h11v1",
  download: "M12 4v11m-5-5 5 5 5-5M4 20h16",
  eye: "M2.5 12S6 5.5 12 5.5 21.5 12 21.5 12 18 18.5 12 18.5 2.5 12 2.5 12Zm12.5 0a3 3 0 1 1-6 0 3 3 0 0 1 6 0Z",
  fields: "M4 6h16M4 12h10M4 18h13",
  file: "M13 3H6v18h12V8l-5-5Zm0 0v5h5",
  filter: "M4 5h16l-6 7.5V19l-4 2v-8.5L4 5Z",
  flag: "M5 21V4h13l-3 4.5 3 4.5H5",
  groups: "M4 4h7v7H4V4Zm9 0h7v7h-7V4ZM4 13h7v7H4v-7Zm9 0h7v7h-7v-7Z",
  inbox: "M4 13 6.5 5h11L20 13v6H4v-6Zm0 0h4.5l1 2.5h5l1-2.5H20",
  keyboard: "M3 6h18v12H3V6Zm4 4v.01M11 10v.01M15 10v.01M8 14h8",
  link: "M10 14a4 4 0 0 0 6 .4l3-3a4 4 0 0 0-5.7-5.7l-1 1M14 10a4 4 0 0 0-6-.4l-3 3a4 4 0 0 0 5.7 5.7l1-1",
  menu: "M4 7h16M4 12h16M4 17h16",
  moon: "M20 14.5A8.5 8.5 0 1 1 9.5 4a7 7 0 0 0 10.5 10.5Z",
  plus: "M12 5v14m-7-7h14",
  refresh: "M20 11a8 8 0 1 0-2.3 6M20 5v6h-6",
  review: "m8.5 12 2.5 2.5 4.5-5M4 4h16v16H4V4Z",
  runs: "M5 20V11m7 9V4m7 16v-6",
  search: "M16.5 16.5 21 21M18.5 11a7.5 7.5 0 1 1-15 0 7.5 7.5 0 0 1 15 0Z",
  sessions: "M12 3 4.5 6v5.5c0 4.5 3 8 7.5 9.5 4.5-1.5 7.5-5 7.5-9.5V6L12 3Zm-2.8 8.7 2 2 3.6-4",
  signout: "M14 4H5v16h9m-4-8h11m-4-4 4 4-4 4",
  sun: "M12 4V2m0 20v-2m8-8h2M2 12h2m13.7-5.7 1.4-1.4M4.9 19.1l1.4-1.4m11.4 0 1.4 1.4M4.9 4.9l1.4 1.4M16 12a4 4 0 1 1-8 0 4 4 0 0 1 8 0Z",
  trash: "M4 7h16M10 4h4m-8 3 1 13h10l1-13m-8 4v5m4-5v5",
  webhooks: "M21 3 10.5 13.5M21 3l-6.5 18-4-7.5-7.5-4L21 3Z",
  upload: "M12 16V5M7 10l5-5 5 5M4 20h16",
};

/** An icon. With a label, screen readers read it; without one, it is decoration. */
export function Icon({ name, label }) {
  return html`<svg
    class="icon"
    viewBox="0 0 24 24"
    role=${label ? "img" : undefined}
    aria-label=${label}
    aria-hidden=${label ? undefined : "true"}
  ><path d=${PATHS[name]} /></svg>`;
}
