// One output: key facts, value, tags, files and history; beside a list, or as a page.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { get, path, send } from "../api.js";
import { save } from "../download.js";
import { number } from "../format.js";
import { useKeys } from "../keys.js";
import { useAction, useLoad } from "../load.js";
import { href } from "../router.js";
import { Badge, Button, Choice } from "../ui/controls.js";
import { CopyButton } from "../ui/copy.js";
import { Empty, Loaded, notify } from "../ui/feedback.js";
import { Panel } from "../ui/page.js";
import { Facts } from "../ui/records.js";
import { SourceLink, Text, Time, shortUrl, visibleText } from "../ui/text.js";
import { Tree } from "../ui/value.js";
import { GroupPage, useGroupName } from "./group_page.js";
import { Files } from "./output_detail_files.js";
import { ChangedFields, History } from "./output_detail_history.js";

/** The pane beside a list of outputs; it covers a narrow screen. */
export function OutputDetail({ group, outputId, onClose, session }) {
  const ref = useRef();
  const state = useOutput(group, outputId);
  useKeys([{ keys: ["Escape"], label: "Close the output", run: onClose }], { title: "Output" });
  useEffect(() => {
    // On a narrow screen the pane covers the list. Beside the list, the keys of the list go on.
    if (matchMedia("(max-width: 1000px)").matches) ref.current.focus();
  }, []);
  useEffect(() => {
    ref.current.scrollTop = 0;
  }, [outputId]);
  return html`<aside class="output-pane" aria-label="Output" aria-busy=${state.isLoading ? "true" : undefined} tabindex="-1" ref=${ref}>
    <header>
      <h2 title=${visibleText(titleOf(state.data))}><${Text}>${titleOf(state.data)}<//></h2>
      ${state.data && html`<${Approval} details=${state.data} />`}
      <div class="actions">
        <${Button} small kind="quiet" icon="arrow" href=${href(["groups", group, "outputs", outputId])} aria-label="Open as a page" title="Open as a page" />
        <${Download} group=${group} outputId=${outputId} />
        <${Button} small kind="quiet" icon="close" aria-label="Close" title="Close (Esc)" onClick=${onClose} />
      </div>
    </header>
    <${Content} ...${{ state, group, outputId, session }} />
  </aside>`;
}

/** The screen of one output. */
export function OutputScreen({ group, output: outputId, session }) {
  const state = useOutput(group, outputId);
  return html`<${GroupPage}
    group=${group}
    current="Outputs"
    title=${titleOf(state.data)}
    crumbs=${[["Groups", ["groups"]], [useGroupName(group), ["groups", group]], ["Outputs", ["groups", group, "outputs"]]]}
    actions=${html`${state.data && html`<${Approval} details=${state.data} />`}<${Download} group=${group} outputId=${outputId} isLong />`}
  >
    <div class="output-page"><${Content} ...${{ state, group, outputId, session }} /></div>
  <//>`;
}

const NAME = /^(title|name|label|headline)$/i;

/** Returns the name that an output has in its data, or else its source. */
function titleOf(details) {
  const members = details?.data[0] === "o" ? details.data[1] : [];
  const named = members.find(([name, value]) => NAME.test(name) && value[0] === "s" && value[1].trim());
  return (named?.[1][1] || shortUrl(details?.source_url ?? "") || "Output").slice(0, 120);
}

function useOutput(group, outputId) {
  return useLoad((signal) => get(path`console/api/outputs/${group}/${outputId}`, {}, signal), [group, outputId]);
}

function Content({ state, group, outputId }) {
  if (state.error?.status === 404) return html`<${Missing} group=${group} outputId=${outputId} />`;
  return html`<${Loaded} state=${state}>
    ${(details) => html`<div class="output-sections" key=${details.output_id}>
      <div class="output-main">
        <${Value} details=${details} group=${group} />
        ${details.tags[2] > 0 && html`<${Panel} title="Tags"><${Tree} node=${details.tags} path="/tags" load=${loader(group, details.output_id)} /><//>`}
        ${details.file_count > 0 && html`<${Panel} title=${`Files (${number(details.file_count)})`}><${Files} files=${details.files} count=${details.file_count} group=${group} outputId=${details.output_id} /><//>`}
      </div>
      <${Panel} class="output-facts"><${About} details=${details} group=${group} /><//>
      <${Panel} title="History" class="output-history"><${History} group=${group} outputId=${details.output_id} /><//>
    </div>`}
  <//>`;
}

function Missing({ group, outputId }) {
  return html`<${Empty} icon="search" title="This output does not exist now">
      It was deleted, or the address is wrong.
    <//>
    <${Panel} title="History"><${History} key=${outputId} group=${group} outputId=${outputId} /><//>`;
}

function Approval({ details }) {
  if (details.is_approved) return html`<${Badge} tone="good">Approved<//>`;
  return html`<${Badge} tone=${details.approved_version ? "warn" : undefined}>${details.approved_version ? "Changed since approval" : "Not approved"}<//>`;
}

function Download({ group, outputId, isLong }) {
  const { run, isBusy } = useAction(() =>
    save(path`v1/outputs/${group}/${outputId}`, `${group}-${outputId.slice(-12)}.json`).catch((error) =>
      notify(`The download failed. ${error.message}`, { tone: "bad" }),
    ),
  );
  const rest = { isBusy, icon: "download", onClick: () => run() };
  if (isLong) return html`<${Button} ...${rest}>Download JSON<//>`;
  return html`<${Button} small kind="quiet" ...${rest} aria-label="Download JSON" title="Download JSON" />`;
}

function About({ details, group }) {
  const hashes = [["Output ID", details.output_id], ["Key hash", details.key_hash], ["Value hash", details.value_hash]];
  const rows = [
    ["Job", html`<a href=${href(["groups", group, "outputs"], { job_id: details.job_id })}><${Text}>${details.job_id}<//></a>`],
    ["Source", html`<${SourceLink} url=${details.source_url} />`],
    ["Value changed", html`<${Time} at=${details.value_date} />`],
    details.update_date !== details.value_date && [details.is_approved ? "Approved" : "Unapproved", html`<${Time} at=${details.update_date} />`],
    ["First seen", html`<${Time} at=${details.create_date} />`],
    ["Last scraped", html`<${Time} at=${details.last_scraped_date} />`],
  ];
  const technical = hashes.map(([label, text]) => [label, html`<span class="output-hash"><code title=${text}>${text}</code><${CopyButton} text=${text} label=${label} /></span>`]);
  return html`<${Facts} rows=${rows} /><details><summary class="muted">Technical</summary><${Facts} rows=${technical} /></details>`;
}

/** more: the field from which paths start, and the position of the value that is shown. */
export function loader(group, outputId, version, more) {
  return async (pointer, part) => {
    const query = { ...more, path: pointer, version, part };
    return (await send("GET", path`console/api/outputs/${group}/${outputId}/value`, { query })).text();
  };
}

/** The current value; if it is not approved, also the last approved one and the differences. */
function Value({ details, group }) {
  const approved = details.approved_version;
  const [shown, setShown] = useState(approved ? "changes" : "current");
  const options = approved && [["changes", "Changes"], ["current", "Current"], ["approved", "Last approved"]];
  const version = shown === "approved" ? "approved" : undefined;
  return html`<${Panel} title="Value" actions=${approved && html`<${Choice} label="Shown value" value=${shown} onValue=${setShown} options=${options} />`}>
    ${shown === "changes" &&
    html`<p class="muted">Since the last approved version (<${Time} at=${approved.update_date} />):</p>
      ${approved.fields.length ? html`<${ChangedFields} fields=${approved.fields} />` : html`<p>No field differs.</p>`}`}
    ${shown !== "changes" &&
    html`<${Tree} key=${shown} node=${version ? approved.data : details.data} path="/data" load=${loader(group, details.output_id, version)} />`}
  <//>`;
}
