import { Button, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { calls } from "../../api/calls";
import type { QueueRow } from "../../api/types";
import { Dialog } from "../../parts/Dialog";
import { count } from "../../parts/format";
import { Failure, Notice } from "../../parts/Notices";
import { Foreign } from "../../parts/Texts";
import { strings } from "../../strings";
import { IN_USE, listName } from "./names";

const s = strings.bulk;
const MOST_NAMED = 12;

export type Act = keyof typeof s.title;
const ACTS: Record<Act, (machine: string, queue: string) => Promise<undefined>> = {
  pause: calls.pauseQueue,
  resume: calls.resumeQueue,
  purge: calls.purge,
  remove: calls.deleteQueue,
};

/** The queues of a selection with which this can be done. */
export function fit(act: Act, rows: readonly QueueRow[]): readonly QueueRow[] {
  return rows.filter((row) => {
    if (act === "purge") return true;
    return IN_USE.includes(row.queue_type) || (act !== "remove" && row.queue_type === "outgoing");
  });
}

/** One act on several queues, one after the other: what failed is named, and the rest is done. */
export function BulkDialog({
  act,
  rows,
  onClose,
}: {
  act: Act;
  rows: readonly QueueRow[];
  onClose: () => void;
}): ReactNode {
  const queries = useQueryClient();
  const [typed, setTyped] = useState("");
  const [done, setDone] = useState(0);
  const isFinal = act === "purge" || act === "remove";
  const messages = rows.reduce((sum, row) => sum + row.message_count, 0);
  const run = useMutation({
    mutationFn: async () => {
      const failed: { row: QueueRow; error: unknown }[] = [];
      for (const [index, row] of rows.entries()) {
        await ACTS[act](row.machine, row.pathname).catch((error: unknown) => failed.push({ row, error }));
        setDone(index + 1);
      }
      return failed;
    },
    onSettled: () => queries.invalidateQueries({ predicate: (query) => query.queryKey[0] !== "session" }),
  });
  return (
    <Dialog title={s.title[act]} onClose={onClose}>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          run.mutate();
        }}
      >
        <Notice tone={isFinal ? "bad" : "plain"}>
          <p>{s.about[act](rows.length, count(messages))}</p>
          <ul>
            {rows.slice(0, MOST_NAMED).map((row) => (
              <li key={`${row.machine}/${row.pathname}`}>
                <Foreign text={listName(row)} most={100} /> {strings.queue.on} <Foreign text={row.machine} most={60} />:{" "}
                {count(row.message_count)}
              </li>
            ))}
          </ul>
          {rows.length > MOST_NAMED && <p>{strings.map.more(rows.length - MOST_NAMED)}</p>}
        </Notice>
        {isFinal && !run.data && (
          <TextInput
            label={s.type(rows.length)}
            value={typed}
            onChange={(event) => setTyped(event.currentTarget.value)}
            autoComplete="off"
            data-autofocus
          />
        )}
        {(run.isPending || run.data) && <p role="status">{s.progress(done - (run.data?.length ?? 0), rows.length)}</p>}
        {run.data?.map(({ row, error }) => (
          <div key={`${row.machine}/${row.pathname}`}>
            <strong>
              <Foreign text={listName(row)} most={100} />
            </strong>
            <Failure error={error} />
          </div>
        ))}
        <div className="dialog-actions">
          <Button variant="default" onClick={onClose}>
            {run.data ? strings.close : strings.cancel}
          </Button>
          {!run.data && (
            <Button
              type="submit"
              color={isFinal ? "red" : undefined}
              loading={run.isPending}
              disabled={isFinal && typed.trim() !== String(rows.length)}
            >
              {s.confirm[act](rows.length)}
            </Button>
          )}
        </div>
      </form>
    </Dialog>
  );
}
