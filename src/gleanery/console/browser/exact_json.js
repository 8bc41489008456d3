// JSON whose numbers keep every digit when they are sent back, where the browser can do that.

const DOUBLE_DIGITS = 15; // a number with at most so many digits loses none

/** Parses a text. A number that would lose digits stays as its text, and JSON.stringify writes that again. */
export function parseExact(text) {
  return JSON.parse(text, (name, value, context) => {
    if (typeof value !== "number" || !JSON.rawJSON) return value;
    const digits = context.source.replace(/e.*$/i, "").replace(/^[-0.]+|[.]/g, "");
    return digits.length <= DOUBLE_DIGITS || String(value) === context.source ? value : JSON.rawJSON(context.source);
  });
}
