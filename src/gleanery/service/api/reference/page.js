// The reference page: search, navigation, copying, and the forms that send requests.
// Everything is inserted as text. The token is only in the memory of this page.

const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const one = (selector, inside = document) => inside.querySelector(selector);

const element = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};

// --- Address of the service: that of this page, also behind a proxy that adds a path --------------

const folder = location.pathname.replace(/\/[^/]*$/, '');
const base = location.origin + folder.replaceAll("'", '%27');
const documented = document.body.dataset.base;
for (const code of all('code')) {
  if (code.textContent.includes(documented)) {
    code.textContent = code.textContent.replaceAll(documented, () => base);
  }
}

// --- Copying and the language of the examples -----------------------------------------------------

async function copy(code) {
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch { // only HTTPS and localhost have a clipboard
    getSelection().selectAllChildren(code);
    document.execCommand('copy');
  }
}

const shownCode = (block) => all('pre code', block).find((code) => code.checkVisibility());

for (const block of all('.code:has(pre)')) {
  const button = element('button', { type: 'button', className: 'copy', textContent: 'Copy' });
  button.addEventListener('click', async () => {
    await copy(shownCode(block));
    button.textContent = 'Copied';
    setTimeout(() => { button.textContent = 'Copy'; }, 2000);
  });
  one('.bar', block).append(button);
}

document.addEventListener('change', ({ target }) => {
  if (target.matches('.request [type="radio"]')) {
    for (const radio of all(`.request [value="${target.value}"]`)) radio.checked = true;
  }
});

// --- Colours of code, without changing its text ---------------------------------------------------

// The end of a string may be missing. Otherwise each quote in it would search for the end again.
const STRING = /("(?:[^"\\\n]|\\.)*"?|'[^'\n]*')(\s*:)?/;
const NUMBER = /(?<=[\s[(,])(?:-?\d[\d.eE+-]*|[Tt]rue|[Ff]alse|null|None)(?=[\s\]),}]|$)/;
const TOKEN = new RegExp(`${STRING.source}|${NUMBER.source}`, 'g');
const highlights = {};
if (globalThis.Highlight) {
  for (const name of ['key', 'string', 'number', 'found']) {
    highlights[name] = new Highlight();
    CSS.highlights.set(name, highlights[name]);
  }
}

function mark(name, node, start, length) {
  const range = new StaticRange({
    startContainer: node, startOffset: start, endContainer: node, endOffset: start + length,
  });
  highlights[name]?.add(range);
}

function colour(code) {
  for (const node of code.childNodes) {
    if (node.nodeType !== Node.TEXT_NODE) continue;
    for (const { index, 0: text, 1: string, 2: colon } of node.data.matchAll(TOKEN)) {
      if (string === undefined) mark('number', node, index, text.length);
      else mark(colon ? 'key' : 'string', node, index, string.length);
    }
  }
}
all('pre code').forEach(colour);

// A keyboard can scroll only what it can focus.
const scrollers = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    target.tabIndex = target.scrollHeight > target.clientHeight ? 0 : -1;
  }
});
all('pre').forEach((block) => scrollers.observe(block));

// --- Navigation -----------------------------------------------------------------------------------

document.documentElement.classList.add('scripted');
const menu = one('.menu');
const isNarrow = matchMedia('(max-width: 54rem)');
const links = new Map(all('nav a').map((link) => [link.hash.slice(1), link]));

const fitMenu = () => { menu.open = !isNarrow.matches; };
isNarrow.addEventListener('change', fitMenu);
fitMenu();
menu.addEventListener('click', ({ target }) => { if (target.closest('a')) fitMenu(); });
menu.addEventListener('keydown', ({ key }) => {
  if (key === 'Escape' && isNarrow.matches) {
    menu.open = false;
    one('summary', menu).focus();
  }
});

function setCurrent(id) {
  for (const link of links.values()) link.removeAttribute('aria-current');
  const link = links.get(id);
  link?.setAttribute('aria-current', 'true');
  if (!isNarrow.matches) link?.scrollIntoView({ block: 'nearest' });
}

const observer = new IntersectionObserver((entries) => {
  const entered = entries.find((entry) => entry.isIntersecting);
  if (entered) setCurrent(entered.target.id);
}, { rootMargin: '-10% 0px -85% 0px' });
all('#introduction, article').forEach((part) => observer.observe(part));

// --- Search ---------------------------------------------------------------------------------------

const search = one('#search');
const parts = all('article').map((part) => ({
  part,
  nodes: all('h3, .route, .find', part),
  text: all('h3, .route, .find', part).map((node) => node.textContent).join(' ').toLowerCase()
    + part.closest('.group').id,
}));

function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  highlights.found?.clear();
  let [operations, types] = [0, 0];
  for (const { part, nodes, text } of parts) {
    const fits = words.every((word) => text.includes(word));
    part.hidden = !fits;
    const link = links.get(part.id);
    link.parentElement.hidden = !fits;
    if (!fits) continue;
    part.matches('.type') ? types += 1 : operations += 1;
    nodes.forEach((node) => markWords(node, words));
  }
  const isActive = words.length > 0;
  links.get('introduction').parentElement.hidden = isActive;
  for (const group of all('.group')) group.hidden = !one('article:not([hidden])', group);
  for (const item of all('nav > ul > li:has(ul)')) item.hidden = !one('ul > li:not([hidden])', item);
  one('#introduction').hidden = isActive;
  one('nav .types').open = isActive;
  one('#matches').textContent = isActive
    ? `${operations} ${operations === 1 ? 'operation' : 'operations'} and ${types} ${types === 1 ? 'type' : 'types'} found`
    : '';
}

function markWords(inside, words) {
  if (words.length === 0) return;
  const walker = document.createTreeWalker(inside, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.toLowerCase();
    for (const word of words) {
      for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + word.length)) {
        mark('found', walker.currentNode, at, word.length);
      }
    }
  }
}

function bestMatch() {
  const titles = all('article:not([hidden]) h3 a');
  const wanted = search.value.trim().toLowerCase();
  return titles.find((title) => title.textContent.toLowerCase().includes(wanted)) ?? titles[0];
}

function showEverything() {
  search.value = '';
  filter();
}

search.closest('[hidden]').hidden = false;
search.addEventListener('input', () => {
  filter();
  scrollTo(0, 0);
});
search.addEventListener('keydown', ({ key }) => {
  if (key === 'Escape') showEverything();
  if (key === 'Enter') bestMatch()?.focus();
});

// A single key as a shortcut can be switched off, for people who speak to their computer.
const shortcut = one('.search button');
shortcut.addEventListener('click', () => {
  shortcut.ariaPressed = shortcut.ariaPressed === 'true' ? 'false' : 'true';
});
document.addEventListener('keydown', (event) => {
  if (shortcut.ariaPressed !== 'true') return;
  const isTyping = event.target.closest('input:not([type="radio"], [type="checkbox"]), textarea, select');
  if (event.key !== '/' || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  search.focus();
});
document.addEventListener('click', ({ target }) => {
  const id = target.closest('a[href^="#"]')?.hash.slice(1);
  if (id && document.getElementById(id).closest('[hidden]')) showEverything();
});

// --- Try it ---------------------------------------------------------------------------------------

const MAX_SHOWN_BYTES = 256 * 1024;

for (const details of all('.try')) details.hidden = false;

document.addEventListener('input', ({ target }) => {
  if (!target.matches('.token')) return;
  for (const field of all('.token')) if (field !== target) field.value = target.value;
});

document.addEventListener('change', ({ target }) => {
  if (!target.matches('[data-in="media"]')) return;
  const body = one('[data-in="body"]', target.form);
  body.value = target.selectedOptions[0].dataset.example;
  body.dataset.media = target.value;
});

function requestOf(form) {
  const query = new URLSearchParams();
  const headers = new Headers();
  let path = form.dataset.path;
  let body;
  const takers = {
    path: ({ name, value }) => {
      if (/^\.\.?$/.test(value)) throw new Error(`browsers cannot send ${value} as ${name}`);
      path = path.replace(`{${name}}`, () => encodeURIComponent(value));
    },
    query: ({ name, value }) => query.append(name, value),
    header: ({ name, value }) => headers.set(name, value),
    body: ({ value, dataset }) => { body = value; headers.set('Content-Type', dataset.media); },
    file: ({ files }) => {
      [body] = files;
      headers.set('Content-Type', body?.type || 'application/octet-stream');
    },
    media: () => {},
  };
  for (const field of all('[data-in]', form)) if (field.value) takers[field.dataset.in](field);
  const token = one('.token', form)?.value.trim().replace(/^Bearer\s+/, '');
  if (token) headers.set('Authorization', `Bearer ${token}`);
  const url = base + path + (query.size ? `?${query}` : '');
  return { url, method: form.dataset.method, headers, body };
}

async function readStart(response, controller) {
  const pieces = [];
  let size = 0;
  for (const reader = response.body?.getReader(); reader;) {
    const { done, value } = await reader.read();
    if (done) return { pieces, size, isComplete: true };
    pieces.push(value);
    size += value.length;
    if (size > MAX_SHOWN_BYTES) {
      controller.abort(); // a long response, such as an export
      return { pieces, size, isComplete: false };
    }
  }
  return { pieces, size, isComplete: true };
}

// Inserts line breaks without parsing: numbers keep all their digits.
function indented(text) {
  let depth = 0;
  const line = () => `\n${'  '.repeat(Math.max(depth, 0))}`;
  return text.replace(/"(?:[^"\\]|\\.)*"?|[{[]\s*[}\]]|[{}[\],:]|\s+/g, (found) => {
    if (/^\s/.test(found)) return '';
    if (found === '{' || found === '[') { depth += 1; return found + line(); }
    if (found === '}' || found === ']') { depth -= 1; return line() + found; }
    if (found === ',') return found + line();
    return found === ':' ? ': ' : found;
  });
}

async function shownBody(response, { pieces, size, isComplete }) {
  const type = response.headers.get('Content-Type') ?? '';
  if (size === 0) return 'No body.';
  if (!/json|^text\//.test(type)) return `The body has ${type || 'no type'} and is not shown.`;
  const text = (await new Blob(pieces).text()).slice(0, MAX_SHOWN_BYTES);
  const shown = /^application\/json/.test(type) ? indented(text) : text;
  return isComplete ? shown : `${shown}\n… only the start is shown`;
}

function showStatus(details, className, text, rest = '') {
  const status = element('strong', { className, textContent: text });
  one('[role="status"]', details).replaceChildren(status, rest);
}

function showResponse(details, { method, url }, response, read, body) {
  const headers = [...response.headers].map(([name, value]) => `${name}: ${value}`).join('\n');
  const code = element('code', { textContent: body });
  const shown = element('pre', { tabIndex: 0, className: 'json' }, code);
  shown.setAttribute('role', 'group');
  shown.setAttribute('aria-label', 'Body of the response');
  colour(code);
  one('.result', details).replaceChildren(
    element('p', {}, element('code', { textContent: `${method} ${url}` })),
    element('details', {}, element('summary', { textContent: 'Headers' }),
      element('pre', {}, element('code', { textContent: headers }))),
    shown,
  );
}

async function exchange(details, form, controller) {
  const request = requestOf(form);
  const start = performance.now();
  const response = await fetch(request.url, {
    ...request, signal: controller.signal, cache: 'no-store', credentials: 'omit',
  });
  const read = await readStart(response, controller);
  const size = `${read.isComplete ? '' : 'more than '}${read.size.toLocaleString('en')} bytes`;
  showResponse(details, request, response, read, await shownBody(response, read));
  showStatus(details, response.ok ? 'good' : 'bad',
    `${response.status} ${response.statusText}`.trim(),
    ` in ${Math.round(performance.now() - start)} ms, ${size}`);
}

async function send(form) {
  const details = form.closest('.try');
  const cancel = one('.cancel', form);
  if (!cancel.hidden) return; // one request at a time
  const controller = new AbortController();
  cancel.onclick = () => controller.abort();
  cancel.hidden = false;
  one('.result', details).replaceChildren();
  showStatus(details, '', 'Waiting for the response …');
  try {
    await exchange(details, form, controller);
  } catch (error) {
    showStatus(details, 'bad', error.name === 'AbortError' ? 'Cancelled' : 'No response',
      error.name === 'AbortError' ? '' : `: ${error.message}`);
  }
  if (cancel === document.activeElement) one('button', form).focus();
  cancel.hidden = true;
  for (const box of all('[type="checkbox"]', form)) box.checked = false; // each write is confirmed
}

document.addEventListener('submit', (event) => {
  event.preventDefault();
  send(event.target);
});
