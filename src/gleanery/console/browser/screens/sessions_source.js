// The area where a person pastes or drops the document of an import.

import { html, useRef, useState } from "../vendor/preact.js";
import { bytes } from "../format.js";
import { Button, Field } from "../ui/controls.js";
import { Icon } from "../ui/icons.js";

const FORMATS = ["Playwright storage_state", "cookies.txt", "Cookie-Editor and other extensions", "Copy as cURL", "HAR", "Cookie header",
  "Selenium", "Puppeteer", "Scrapy"];

/** onSource gets { label, size, body }. A pasted text goes there at once, and is never in the page. */
export function Source({ onSource }) {
  const [isOver, setOver] = useState(false);
  const text = useRef();
  const take = (data) => {
    const file = data.files[0];
    const pasted = data.getData("text/plain");
    if (file) onSource(fromFile(file));
    else if (pasted.trim()) onSource(fromText(pasted));
  };
  const drop = (event) => {
    event.preventDefault();
    setOver(false);
    take(event.dataTransfer);
  };
  const paste = (event) => {
    event.preventDefault();
    take(event.clipboardData);
  };
  const typed = () => {
    const { value } = text.current;
    text.current.value = "";
    if (value.trim()) onSource(fromText(value));
    else text.current.focus();
  };
  const over = (event) => {
    event.preventDefault();
    setOver(true);
  };
  return html`<div class=${`sessions-drop ${isOver ? "over" : ""}`} onDragOver=${over} onDragLeave=${() => setOver(false)} onDrop=${drop}>
      <span class="sessions-drop-icon"><${Icon} name="upload" /></span>
      <p><strong>Drop a file here</strong> or <${FileButton} onFile=${(file) => onSource(fromFile(file))} /></p>
      <${Field} label="Or paste a text" class="sessions-paste">
        ${(attributes) => html`<textarea ...${attributes} ref=${text} rows="3" autocomplete="off" autocapitalize="off" spellcheck=${false}
          placeholder="curl 'https://shop.example/' -b 'sid=…'" onPaste=${paste}></textarea>`}
      <//>
      <${Button} onClick=${typed}>Preview<//>
    </div>
    <div>
      <h3>What is understood</h3>
      <ul class="sessions-formats">${FORMATS.map((name) => html`<li key=${name} class="badge">${name}</li>`)}</ul>
    </div>
    <p class="hint">The document is sent only to this service. The preview shows no values, and nothing is stored before you confirm.</p>`;
}

function FileButton({ onFile }) {
  const input = useRef();
  const choose = (event) => event.target.files[0] && onFile(event.target.files[0]);
  return html`<input ref=${input} type="file" hidden onChange=${choose} />
    <${Button} small icon="file" onClick=${() => input.current.click()}>Choose a file<//>`;
}

function fromFile(file) {
  return { label: file.name, size: bytes(file.size), body: file };
}

function fromText(text) {
  return { label: "Pasted text", size: bytes(new Blob([text]).size), body: text };
}
