// The filters of the grid: a chip for each, and a form that adds one.

import { html, useId, useState } from "../vendor/preact.js";
import { Button } from "../ui/controls.js";
import { Icon } from "../ui/icons.js";
import { Text, visibleText } from "../ui/text.js";

const CHOICES = {
  approved: [["true", "approved"], ["false", "not approved"]],
  view: [["approved", "last approved version"]],
  missing: [["true", "not in the last complete run"]],
};
export const FILTERS = {
  job_id: { label: "Job", hint: "Exact name" },
  url: { label: "Source URL", hint: "Exact, with https://" },
  country: { label: "Country", hint: "Germany or DE" },
  region: { label: "Region", hint: "DE-BY" },
  created_after: { label: "Updated since", type: "date" },
  approved: { label: "Approval" },
  view: { label: "View" },
  missing: { label: "Missing" },
};

/** Returns the filters in the query of the route. */
export function filtersOf(query) {
  return Object.fromEntries(Object.keys(FILTERS).filter((name) => query[name]).map((name) => [name, query[name]]));
}

/** group: with its jobs and countries, which are suggestions; undefined until it is loaded. */
export function Filters({ filters, group, onFilters }) {
  const remove = (name) => onFilters({ ...filters, [name]: undefined });
  return html`<div class="outputs-filters">
    <${AddFilter} group=${group} onAdd=${(name, value) => onFilters(compatible({ ...filters, [name]: value }, name))} />
    ${Object.entries(filters).map(
      ([name, value]) => html`<span key=${name} class="outputs-chip">
        <span class="muted">${FILTERS[name].label}</span>
        <strong><${Text}>${textOf(name, value)}<//></strong>
        <button type="button" aria-label=${`Remove the filter ${FILTERS[name].label}`} onClick=${() => remove(name)}><${Icon} name="close" /></button>
      </span>`,
    )}
  </div>`;
}

/** The filters by the present state of an output. The service rejects them in the approved view, which has earlier states. */
export const OF_PRESENT = ["approved", "missing"];

function compatible(filters, added) {
  if (!filters.view) return filters;
  if (OF_PRESENT.includes(added)) delete filters.view;
  else for (const name of OF_PRESENT) delete filters[name];
  return filters;
}

export function textOf(name, value) {
  return CHOICES[name]?.find(([key]) => key === value)?.[1] ?? value;
}

const regions = new Intl.DisplayNames("en", { type: "region" });

/** Returns the values that outputs of the group have: [value, label], … */
function suggestions(name, group) {
  if (name === "job_id") return group?.jobs.map((job) => [job.job_id]) ?? [];
  if (name !== "country") return [];
  return Object.keys(group?.countries ?? {}).map((code) => [code, /^[A-Z]{2}$/.test(code) ? regions.of(code) : undefined]);
}

function AddFilter({ group, onAdd }) {
  const [name, setName] = useState("job_id");
  const [value, setValue] = useState("");
  const id = useId();
  const choices = CHOICES[name];
  const known = suggestions(name, group);
  const example = name === "job_id" && known[0]?.[0];
  const submit = (event) => {
    event.preventDefault();
    const chosen = value.trim() || choices?.[0][0];
    if (!chosen) return;
    onAdd(name, chosen);
    setValue("");
  };
  const choose = (event) => {
    setName(event.target.value);
    setValue("");
  };
  return html`<form class="outputs-add" onSubmit=${submit}>
    <select class="outputs-name" aria-label="Filter by" value=${name} onChange=${choose}>
      ${Object.entries(FILTERS).map(([key, { label }]) => html`<option key=${key} value=${key}>${label}</option>`)}
    </select>
    ${choices
      ? html`<select class="outputs-value" aria-label="Value" value=${value || choices[0][0]} onChange=${(event) => setValue(event.target.value)}>
          ${choices.map(([key, text]) => html`<option key=${key} value=${key}>${text}</option>`)}
        </select>`
      : html`<input
          class="outputs-value"
          aria-label="Value"
          type=${FILTERS[name].type ?? "text"}
          placeholder=${example ? `Exactly, e.g. ${visibleText(example)}` : FILTERS[name].hint}
          autocomplete="off"
          spellcheck=${false}
          list=${known.length ? id : undefined}
          value=${value}
          onInput=${(event) => setValue(event.target.value)}
          onKeyDown=${(event) => event.key === "Escape" && event.target.blur()}
        />`}
    <datalist id=${id}>${known.map(([one, label]) => html`<option key=${one} value=${one} label=${label} />`)}</datalist>
    <${Button} icon="filter" aria-label="Add the filter" title="Add the filter (Enter)" type="submit" />
  </form>`;
}
