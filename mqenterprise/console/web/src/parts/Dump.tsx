import { type ReactNode, useMemo } from "react";
import { strings } from "../strings";
import { bytesOf, dump } from "./bytes";
import { count } from "./format";

const MOST_LINES = 2048;

/** Bytes as they are: offset, hexadecimal, letters. */
export function Dump({ base64, label }: { base64: string; label: string }): ReactNode {
  const bytes = useMemo(() => bytesOf(base64), [base64]);
  const lines = useMemo(() => dump(bytes, MOST_LINES), [bytes]);
  if (!bytes.length) return <p className="dim">{strings.message.noBytes}</p>;
  return (
    <>
      <pre className="body-text dump" role="region" aria-label={label} tabIndex={0}>
        {lines.map((line) => `${line.offset}  ${line.hexadecimal.padEnd(47)}  ${line.letters}\n`).join("")}
      </pre>
      {bytes.length > MOST_LINES * 16 && (
        <p className="dim">{strings.message.cut(count(MOST_LINES * 16), count(bytes.length))}</p>
      )}
    </>
  );
}
