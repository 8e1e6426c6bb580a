/** Bytes as text: base64 in, lines of a hexadecimal dump out. */

export interface DumpLine {
  readonly offset: string;
  readonly hexadecimal: string;
  readonly letters: string;
}

const WIDTH = 16;

/** The bytes of base64; of none if it is not base64. */
export function bytesOf(base64: string): Uint8Array {
  try {
    return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  } catch {
    return new Uint8Array();
  }
}

/** Lines of 16 bytes, at most `most` of them. */
export function dump(bytes: Uint8Array, most = 4096): DumpLine[] {
  const lines: DumpLine[] = [];
  for (let at = 0; at < bytes.length && lines.length < most; at += WIDTH) {
    const part = Array.from(bytes.subarray(at, at + WIDTH));
    lines.push({
      offset: at.toString(16).padStart(8, "0"),
      hexadecimal: part.map((byte) => byte.toString(16).padStart(2, "0")).join(" "),
      letters: part.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".")).join(""),
    });
  }
  return lines;
}

const WIDE_TYPES = [8, 31];

/** The bytes of a text body as base64: UTF-16 for the types VT_BSTR and VT_LPWSTR, else UTF-8. */
export function base64Of(text: string, bodyType: number): string {
  const bytes = WIDE_TYPES.includes(bodyType)
    ? Uint8Array.from({ length: text.length * 2 }, (_, at) => (text.charCodeAt(at >> 1) >> (at % 2 ? 8 : 0)) & 0xff)
    : new TextEncoder().encode(text);
  let letters = "";
  for (const byte of bytes) letters += String.fromCharCode(byte);
  return btoa(letters);
}

/** Offer bytes of a message as a file. */
export function save(base64: string, lookup: string): void {
  offer([bytesOf(base64) as BlobPart], `message-${lookup.replace(/[^0-9a-zx]/gi, "")}.bin`);
}

/** Offer a file: named by us, of a type that nothing opens. */
export function offer(parts: BlobPart[], name: string): void {
  const address = URL.createObjectURL(new Blob(parts, { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
