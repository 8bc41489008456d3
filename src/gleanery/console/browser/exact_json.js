// JSON whose numbers keep every digit when they are sent back, where the browser can do that.

/** Parses a text. A number that would lose digits stays as its text, and JSON.stringify writes that again. */
export function parseExact(text) {
  return JSON.parse(text, (name, value, context) => {
    const isExact = typeof value !== "number" || !JSON.rawJSON || String(value) === context.source;
    return isExact ? value : JSON.rawJSON(context.source);
  });
}
