import { Button, FileInput, Progress } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, type ReactNode, useState } from "react";
import { calls } from "../../api/calls";
import type { ImportedMessage } from "../../api/types";
import { Dialog } from "../../parts/Dialog";
import { count } from "../../parts/format";
import { Failure, Notice } from "../../parts/Notices";
import { Foreign } from "../../parts/Texts";
import { strings } from "../../strings";

const s = strings.imported;
/** Messages and letters of one request. */
const [MOST, LARGEST] = [200, 400_000];
const MOST_REASONS = 5;

interface Outcome {
  readonly sent: number;
  readonly known: number;
  readonly refused: number;
  readonly reasons: readonly string[];
}

function entryOf(line: string): { packet?: unknown; queue?: unknown } | null {
  try {
    return JSON.parse(line) as { packet?: unknown; queue?: unknown } | null;
  } catch {
    return null;
  }
}

/** The messages of an export, or a sentence that says which line is none. */
function messagesOf(text: string, target: string): ImportedMessage[] {
  return text
    .split("\n")
    .map((line, index) => ({ line, index }))
    .filter(({ line }) => line.trim())
    .map(({ line, index }) => {
      const entry = entryOf(line);
      if (typeof entry?.packet !== "string") throw new Error(s.noLine(index + 1));
      const dead = typeof entry.queue === "string" && /;dead(letter|xact)$/i.test(entry.queue);
      return { packet: entry.packet, target, dead_letter: dead };
    });
}

function* batches(messages: readonly ImportedMessage[]): Generator<readonly ImportedMessage[]> {
  let batch: ImportedMessage[] = [];
  let letters = 0;
  for (const one of messages) {
    if (batch.length && (batch.length >= MOST || letters + one.packet.length > LARGEST)) {
      yield batch;
      [batch, letters] = [[], 0];
    }
    batch.push(one);
    letters += one.packet.length;
  }
  if (batch.length) yield batch;
}

/** Sends the messages of an exported file to the queue, each once: what is in it already is not sent again. */
export function ImportDialog({
  machine,
  queue,
  onClose,
}: {
  machine: string;
  queue: string;
  onClose: () => void;
}): ReactNode {
  const queries = useQueryClient();
  const [file, setFile] = useState<File | null>(null);
  const [done, setDone] = useState<readonly [number, number]>([0, 0]);
  const bring = useMutation({
    mutationFn: async (): Promise<Outcome> => {
      const messages = messagesOf((await file?.text()) ?? "", queue);
      const outcome = { sent: 0, known: 0, refused: 0, reasons: new Set<string>() };
      let sent = 0;
      for (const batch of batches(messages)) {
        setDone([sent, messages.length]);
        const { results } = await calls.importMessages(machine, batch, false);
        for (const { result, detail } of results) {
          if (result === "sent" || result === "known") outcome[result] += 1;
          else {
            outcome.refused += 1;
            if (detail) outcome.reasons.add(detail);
          }
        }
        sent += batch.length;
      }
      setDone([sent, messages.length]);
      return { ...outcome, reasons: [...outcome.reasons] };
    },
    onSettled: () => queries.invalidateQueries({ predicate: (query) => query.queryKey[0] !== "session" }),
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    bring.mutate();
  };
  const outcome = bring.data;
  return (
    <Dialog title={s.title} onClose={onClose}>
      <form className="stack" onSubmit={submit}>
        <p>{s.about}</p>
        <FileInput
          label={s.file}
          placeholder={s.choose}
          accept=".jsonl,.json,.txt"
          value={file}
          onChange={(value) => {
            setFile(value);
            bring.reset();
          }}
          required
          data-autofocus
        />
        {(bring.isPending || outcome) && (
          <>
            <p role="status">{s.progress(count(done[0]), count(done[1]))}</p>
            <Progress value={done[1] ? (100 * done[0]) / done[1] : 0} aria-label={s.title} />
          </>
        )}
        {bring.error && (
          <>
            <Failure error={bring.error} />
            {done[0] > 0 && <p>{s.again(count(done[0]))}</p>}
          </>
        )}
        {outcome && (
          <Notice tone={outcome.refused ? "warn" : "good"}>
            <p>{s.outcome(count(outcome.sent), count(outcome.known), count(outcome.refused))}</p>
            <ul>
              {outcome.reasons.slice(0, MOST_REASONS).map((reason) => (
                <li key={reason}>
                  <Foreign text={reason} most={300} />
                </li>
              ))}
            </ul>
          </Notice>
        )}
        <div className="dialog-actions">
          <Button variant="default" onClick={onClose}>
            {outcome ? strings.close : strings.cancel}
          </Button>
          {!outcome && (
            <Button type="submit" loading={bring.isPending} disabled={!file}>
              {s.confirm}
            </Button>
          )}
        </div>
      </form>
    </Dialog>
  );
}
