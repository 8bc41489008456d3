// The command line that writes the same export, and the name of the file.

const OPTIONS = { job_id: "--job", created_after: "--created-after", url: "--url", country: "--country", region: "--region", view: "--view" };
const CONTROLS = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u;

/** Returns a file name for a group of any name. */
export function fileName(group, format) {
  const name = group.replace(/[^\p{L}\p{N}._-]+/gu, "_").replace(/^[._-]+/, "").slice(0, 80);
  return `${name || "outputs"}.${format}`;
}

/** Returns the command; null if what is copied could differ from what is shown. */
export function commandOf(group, query, service) {
  const options = Object.entries(OPTIONS)
    .filter(([name]) => query[name])
    .map(([name, option]) => `${option}=${quote(query[name])}`);
  if (query.approved) options.push(query.approved === "true" ? "--approved" : "--not-approved");
  const parts = ["gleanery export", `--service=${quote(service)}`, ...options, `--output=${quote(fileName(group, query.format))}`];
  const command = [...parts, group.startsWith("-") ? "--" : "", quote(group)].filter(Boolean).join(" ");
  return CONTROLS.test(command) ? null : command;
}

/** Quotes a word for sh. */
function quote(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
