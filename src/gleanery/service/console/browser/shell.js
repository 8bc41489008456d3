// The frame of all screens: navigation, the person, the theme and the help.

import { html, useEffect, useErrorBoundary, useState } from "./vendor/preact.js";
import { post } from "./api.js";
import { keysAreOff, switchKeys, useKeys, useShortcuts } from "./keys.js";
import { go, href, match, useRoute } from "./router.js";
import { NAVIGATION, SCREENS } from "./screens.js";
import { forgetKey } from "./session_key.js";
import { Button, Checkbox, Key } from "./ui/controls.js";
import { Dialog } from "./ui/dialog.js";
import { Empty, Notices, Problem, notify } from "./ui/feedback.js";
import { Icon } from "./ui/icons.js";
import { Text } from "./ui/text.js";

const THEME = "gleanery.theme";

export function applyTheme() {
  const theme = localStorage.getItem(THEME);
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

/** The current screen in its frame. */
export function Shell({ session }) {
  const route = useRoute();
  const segments = route.segments.length ? route.segments : ["inbox"];
  const [menu, setMenu] = useState(false);
  const [help, setHelp] = useState(false);
  const found = match(SCREENS, segments);
  useEffect(() => setMenu(false), [location.hash]);
  useKeys(
    [
      { keys: ["?"], label: "Show the keyboard shortcuts", run: () => setHelp(true) },
      ...NAVIGATION.map((item) => ({ keys: [item.key], label: item.label, run: () => go(item.segments) })),
    ],
    { title: "Everywhere", isEverywhere: true },
  );
  const active = found?.screen.section ?? segments[0];
  return html`<div class="shell">
    <a class="skip" href="#main" onClick=${skipToMain}>Skip to the content</a>
    <header class="bar">
      <${Button} kind="quiet" icon="menu" aria-label="Menu" aria-expanded=${menu} onClick=${() => setMenu(!menu)} />
      <a class="brand" href=${href(["inbox"])}><${Logo} />Gleanery</a>
    </header>
    <aside class=${menu ? "side open" : "side"}>
      <a class="brand" href=${href(["inbox"])}><${Logo} />Gleanery</a>
      <nav aria-label="Main">
        <ul>
          ${NAVIGATION.map(
            (item) => html`<li key=${item.label}>
              <a href=${href(item.segments)} aria-current=${item.segments[0] === active ? "page" : undefined}>
                <${Icon} name=${item.icon} />${item.label}
              </a>
            </li>`,
          )}
        </ul>
      </nav>
      <div class="foot">
        <${Person} session=${session} />
        <div class="tools">
          <${ThemeButton} />
          <${Button} kind="quiet" icon="keyboard" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)" onClick=${() => setHelp(true)} />
          <${Button} kind="quiet" icon="signout" aria-label="Sign out" title="Sign out" onClick=${signOut} />
        </div>
      </div>
    </aside>
    ${menu && html`<div class="veil" onClick=${() => setMenu(false)}></div>`}
    <main id="main" tabindex="-1">
      ${found
        ? html`<${Guarded} key=${found.screen.pattern + JSON.stringify(found.parameters)} component=${found.screen.component} ...${found.parameters} query=${route.query} session=${session} />`
        : html`<div class="page"><${Empty} icon="search" title="This page does not exist"><a href=${href(["inbox"])}>Go to the inbox</a><//></div>`}
    </main>
    ${help && html`<${Help} onClose=${() => setHelp(false)} />`}
    <${Notices} />
  </div>`;
}

/** A screen. If it fails, the others still work. */
function Guarded({ component, ...rest }) {
  const [error, retry] = useErrorBoundary((problem) => console.error(problem));
  if (!error) return html`<${component} ...${rest} />`;
  return html`<div class="page"><${Problem} error=${{ message: `This screen has failed: ${error.message}` }} onRetry=${retry} /></div>`;
}

function skipToMain(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

async function signOut() {
  try {
    await post("console/api/logout", {});
  } catch (error) {
    notify(error.message, { tone: "bad" });
    return;
  }
  forgetKey();
}

export function Logo() {
  return html`<img class="logo" src=${new URL("icon.svg", import.meta.url)} alt="" />`;
}

function Person({ session }) {
  const initials = session.person.split(/\s+/).map((part) => part[0]).slice(0, 2).join("").toUpperCase();
  return html`<div class="person">
    <span class="avatar" aria-hidden="true">${initials}</span>
    <span><strong><${Text}>${session.person}<//></strong><small><${Text}>${session.organization}<//></small></span>
  </div>`;
}

function ThemeButton() {
  const [theme, setTheme] = useState(localStorage.getItem(THEME) ?? "");
  const isDark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const change = () => {
    const next = isDark ? "light" : "dark";
    localStorage.setItem(THEME, next);
    applyTheme();
    setTheme(next);
  };
  const label = isDark ? "Light theme" : "Dark theme";
  return html`<${Button} kind="quiet" icon=${isDark ? "sun" : "moon"} aria-label=${label} title=${label} onClick=${change} />`;
}

const KEY_NAMES = { 1: "1–9", " ": "Space", ArrowDown: "↓", ArrowUp: "↑", ArrowLeft: "←", ArrowRight: "→", Escape: "Esc" };

function Help({ onClose }) {
  const groups = useShortcuts();
  const [off, setOff] = useState(keysAreOff());
  const change = (value) => {
    switchKeys(value);
    setOff(value);
  };
  return html`<${Dialog} title="Keyboard shortcuts" onClose=${onClose}>
    ${groups
      .filter((group) => group.shortcuts.length)
      .map(
        (group) => html`<section class="shortcuts">
          <h3>${group.title}</h3>
          <dl>
            ${group.shortcuts.map(
              (one) => html`<div>
                <dt>${one.keys.map((key) => html`<${Key}>${KEY_NAMES[key] ?? key}<//>`)}</dt>
                <dd>${one.label}</dd>
              </div>`,
            )}
          </dl>
        </section>`,
      )}
    <${Checkbox} label="Use single keys as shortcuts" checked=${!off} onValue=${(value) => change(!value)} />
  <//>`;
}
