/**
 * Texts of others, made safe to look at: every name, label, header and body may have been written to deceive.
 *
 * React escapes markup. What remains are characters that a reader cannot see or that reorder what stands beside them:
 * controls, bidirectional marks, zero-width characters, tags. They are replaced by a visible form.
 */

export interface Piece {
  readonly text: string;
  /** The code point, if the piece stands for a character that would not be seen. */
  readonly hidden?: number;
}

const HIDDEN =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|[\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]|\p{Surrogate}/gu;

/** The visible form of a character that has none. */
export function shownAs(code: number): string {
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  return `[U+${code.toString(16).toUpperCase().padStart(4, "0")}]`;
}

/** Split a text into what is shown as it is and what is replaced. With `lines`, line feeds and tabs stay. */
export function pieces(text: string, lines = false): Piece[] {
  const found: Piece[] = [];
  let from = 0;
  for (const match of text.matchAll(HIDDEN)) {
    const code = match[0].codePointAt(0) ?? 0;
    if (lines && (code === 0x0a || code === 0x09)) continue;
    if (match.index > from) found.push({ text: text.slice(from, match.index) });
    found.push({ text: shownAs(code), hidden: code });
    from = match.index + match[0].length;
  }
  if (from < text.length) found.push({ text: text.slice(from) });
  return found;
}

/** A condition for messages. A word alone is one for their bodies. */
export function condition(text: string): string {
  const wanted = text.trim();
  return !wanted || /[=<>]/.test(wanted) ? wanted : `body=${wanted}`;
}

/** The same as one string, for titles and labels of controls. */
export function visible(text: string, lines = false): string {
  return pieces(text, lines)
    .map((piece) => piece.text)
    .join("");
}

/** A text of a node as a sentence of its own. */
export function sentence(text: string): string {
  return text && `${text[0]?.toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}

/** The beginning of a text that is too long to be shown whole. */
export function beginning(text: string, most: number): string {
  const letters = Array.from(text.slice(0, most * 2));
  return letters.length > most ? `${letters.slice(0, most).join("")}…` : text;
}

function faultOf(text: string, format: "JSON" | "XML"): string | null {
  if (format === "XML") {
    const error = new DOMParser().parseFromString(text, "application/xml").querySelector("parsererror");
    return error ? (/error on line.*/.exec(error.textContent)?.[0] ?? error.textContent) : null;
  }
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** What is wrong with a text that was JSON or XML before it was changed, and no longer is. */
export function broken(before: string, text: string): { format: string; reason: string } | null {
  const format = /^\s*[[{]/.test(before) ? "JSON" : /^\s*</.test(before) ? "XML" : null;
  if (format === null || faultOf(before, format) !== null) return null;
  const reason = faultOf(text, format);
  return reason === null ? null : { format, reason };
}
