// The files of an output: images of the service as pictures, everything else as names with a download.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { get, path, send } from "../api.js";
import { save, saveFrom } from "../download.js";
import { bytes, plural } from "../format.js";
import { useAction } from "../load.js";
import { Badge, Button } from "../ui/controls.js";
import { Problem } from "../ui/feedback.js";
import { Icon } from "../ui/icons.js";
import { SourceLink, Text, visibleText } from "../ui/text.js";

const AT_ONCE = 1_000_000, LARGEST = 10_000_000, FIRST = 12;
const LARGEST_IN_MEMORY = 50_000_000;

/** Returns the type of an image by its first bytes; null if they are of no image that is safe to show. */
export function imageType(content) {
  const head = String.fromCharCode(...content.subarray(0, 12));
  if (head.startsWith("\x89PNG\r\n\x1a\n")) return "image/png";
  if (head.startsWith("\xff\xd8\xff")) return "image/jpeg";
  if (head.startsWith("GIF87a") || head.startsWith("GIF89a")) return "image/gif";
  if (head.startsWith("RIFF") && head.slice(8) === "WEBP") return "image/webp";
  return null;
}

/** group and outputId name the output. */
export function Files({ files, count, group, outputId }) {
  return html`<ul class="output-files">
    ${files.map((file, at) => html`<li key=${`${at} ${file.id}`}><${File} ...${{ file, group, outputId }} isEarly=${at < FIRST} /></li>`)}
    ${count > files.length &&
    html`<li class="muted">${plural(count - files.length, "more file")}. Download the output to see all.</li>`}
  </ul>`;
}

function File({ file, isEarly, group, outputId }) {
  const about = [file.media_type, file.size !== null && bytes(file.size)].filter(Boolean).join(" · ");
  const mayBeImage = file.is_stored && /^image\/(png|jpeg|gif|webp)$/.test(file.media_type) && file.size <= LARGEST;
  return html`<div class="output-file">
    ${mayBeImage && html`<${Picture} file=${file} atOnce=${isEarly && file.size <= AT_ONCE} />`}
    <div class="output-file-row">
      <${Icon} name="file" />
      <div>
        <strong><${Text}>${file.name || file.field || "File"}<//></strong>
        <small class="muted"><${Text}>${[file.name && file.field, about].filter(Boolean).join(" · ") || "unknown type"}<//></small>
        ${(file.file_url || file.source_url) && html`<small><${SourceLink} url=${file.file_url || file.source_url} /></small>`}
      </div>
      ${file.is_stored ? html`<${Download} ...${{ file, group, outputId }} />` : html`<${Badge} title="The scraper keeps these bytes elsewhere">not stored here<//>`}
    </div>
  </div>`;
}

function Download({ file, group, outputId }) {
  const name = file.name || file.id;
  const { run, isBusy, error } = useAction(async () => {
    if (file.size <= LARGEST_IN_MEMORY) return save(path`v1/files/${file.id}`, name);
    const { files } = await get(path`v1/outputs/${group}/${outputId}`);
    const url = files.find((one) => one.id === file.id)?.blob_url;
    if (!url) throw new Error("The output no longer has this file. Reload the page.");
    return saveFrom(url, name);
  });
  return html`<${Button} small icon="download" isBusy=${isBusy} aria-label=${`Download ${visibleText(file.name || "file")}`} onClick=${run}>Download<//>
    ${error && html`<p class="problem"><${Text}>${error.message}<//></p>`}`;
}

/** The bytes come with the session, because an image element cannot send its key. */
function Picture({ file, atOnce }) {
  const [url, setUrl] = useState(null);
  const controller = useRef();
  const { run, isBusy, error } = useAction(async () => {
    const { signal } = controller.current;
    const content = new Uint8Array(await (await send("GET", path`v1/files/${file.id}`, { signal })).arrayBuffer());
    if (signal.aborted) return; // nobody would revoke the URL
    const type = imageType(content);
    if (!type) throw new Error("These bytes are not an image that can be shown safely. Download the file instead.");
    setUrl(URL.createObjectURL(new Blob([content], { type })));
  });
  useEffect(() => {
    controller.current = new AbortController();
    if (atOnce) run();
    return () => controller.current.abort();
  }, []);
  useEffect(() => () => url && URL.revokeObjectURL(url), [url]);
  if (url) return html`<img src=${url} alt=${`Image ${visibleText(file.name || file.field)}`} />`;
  if (error) return html`<${Problem} error=${error} />`;
  return html`<${Button} small icon="eye" isBusy=${isBusy} onClick=${run}>Show the image (${bytes(file.size)})<//>`;
}
