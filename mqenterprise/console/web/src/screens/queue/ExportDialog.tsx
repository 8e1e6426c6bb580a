import { Button, Progress } from "@mantine/core";
import { type ReactNode, useEffect, useState } from "react";
import { calls } from "../../api/calls";
import { offer } from "../../parts/bytes";
import { Dialog } from "../../parts/Dialog";
import { count, size } from "../../parts/format";
import { Failure } from "../../parts/Notices";
import { strings } from "../../strings";
import { shortName } from "./names";

const s = strings.exported;
const LINE_FEED = 10;

interface Got {
  readonly messages: number;
  readonly bytes: number;
  readonly isDone: boolean;
  readonly error?: unknown;
}

/** Fetches messages as a file, and says how far it is. What was cut off is not saved as if it were whole. */
export function ExportDialog({
  machine,
  queue,
  where = [],
  total,
  onClose,
}: {
  machine: string;
  queue: string;
  where?: readonly string[];
  total: number;
  onClose: () => void;
}): ReactNode {
  const [got, setGot] = useState<Got>({ messages: 0, bytes: 0, isDone: false });
  useEffect(() => {
    const stop = new AbortController();
    const parts: Uint8Array<ArrayBuffer>[] = [];
    let [messages, bytes] = [0, 0];
    const name = shortName({ machine, pathname: queue }).replace(/[^0-9a-z.-]+/gi, "_");
    calls
      .exported(machine, { queue: [queue], where }, stop.signal, (part) => {
        parts.push(part);
        bytes += part.length;
        for (const byte of part) if (byte === LINE_FEED) messages += 1;
        setGot({ messages, bytes, isDone: false });
      })
      .then(
        () => {
          offer(parts, `${name || "messages"}.jsonl`);
          setGot({ messages, bytes, isDone: true });
        },
        (error: unknown) => {
          if (!stop.signal.aborted) setGot({ messages, bytes, isDone: false, error });
        },
      );
    return () => stop.abort();
    // eslint-disable-next-line react-hooks/exhaustive-deps -- begun once: the dialog is of one export
  }, []);
  return (
    <Dialog title={s.title} onClose={onClose}>
      <p role="status">{(got.isDone ? s.done : s.progress)(count(got.messages), count(total), size(got.bytes))}</p>
      <Progress
        value={got.isDone ? 100 : total ? Math.min(99, (100 * got.messages) / total) : 0}
        aria-label={s.title}
        color={got.error ? "red" : undefined}
      />
      {got.error !== undefined && (
        <div className="gap-above">
          <Failure error={got.error} />
          <p className="gap-above">{s.nothingSaved}</p>
        </div>
      )}
      <div className="dialog-actions">
        <Button variant={got.isDone || got.error ? "filled" : "default"} onClick={onClose} data-autofocus>
          {got.isDone || got.error ? strings.close : strings.cancel}
        </Button>
      </div>
    </Dialog>
  );
}
