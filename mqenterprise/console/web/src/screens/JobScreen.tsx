import { Button } from "@mantine/core";
import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { calls } from "../api/calls";
import { useMay } from "../api/session";
import type { JobLogEntry } from "../api/types";
import { Dialog } from "../parts/Dialog";
import { Failure, Notice, StateMark, Waiting } from "../parts/Notices";
import { JobProgress } from "../parts/Progress";
import { Age } from "../parts/Stale";
import { type Column, Table } from "../parts/Table";
import { Foreign, Moment, None } from "../parts/Texts";
import { go, Link, useParams } from "../router";
import { Page } from "../shell/Page";
import { strings } from "../strings";
import { JobTitle } from "./JobsScreen";
import { Ways, wayWord } from "./operation/OperationDialog";
import { isOver, useJob } from "./operation/useJob";
import { shortName, wordOf } from "./queue/names";

const s = strings.jobs;

function columns(machine: string, rows: readonly JobLogEntry[]): readonly Column<JobLogEntry>[] {
  // What no message has needs no room.
  const some = (has: (entry: JobLogEntry) => unknown) => rows.some((entry) => Boolean(has(entry)));
  const all: readonly (Column<JobLogEntry> | false)[] = [
    {
      id: "result",
      title: s.result,
      least: 130,
      tight: 112,
      rank: 9,
      cell: (entry) => (
        <span className={entry.result === "failed" ? "state bad" : "state"}>
          <Foreign text={entry.result} />
        </span>
      ),
    },
    {
      id: "queue",
      title: strings.queues.name,
      least: 120,
      tight: 90,
      grow: 2,
      rank: 8,
      cell: (entry) => <Foreign text={shortName({ machine, pathname: entry.queue })} most={100} />,
    },
    {
      id: "lookup",
      title: strings.message.facts.lookup,
      least: 160,
      rank: 4,
      cell: (entry) => <span className="mono">{entry.lookup_identifier}</span>,
    },
    some((entry) => entry.way) && {
      id: "way",
      title: s.way,
      least: 100,
      rank: 3,
      cell: (entry) => (entry.way ? <Foreign text={wayWord(entry.way)} /> : <None />),
    },
    some((entry) => entry.target) && {
      id: "target",
      title: strings.operation.target,
      least: 120,
      tight: 90,
      grow: 2,
      rank: 6,
      cell: (entry) => (entry.target ? <Foreign text={wordOf(machine, entry.target)} most={100} /> : <None />),
    },
    some((entry) => entry.detail ?? entry.name) && {
      id: "detail",
      title: s.detail,
      least: 130,
      grow: 3,
      rank: 2,
      cell: (entry) =>
        entry.detail || entry.name ? (
          <Foreign text={[entry.name, entry.detail].filter(Boolean).join(": ")} most={300} />
        ) : (
          <None />
        ),
    },
  ];
  return all.filter((column) => column !== false);
}

export function JobScreen(): ReactNode {
  const { machine, number: text } = useParams("/jobs/$machine/$number");
  const number = Number(text);
  const mayOperate = useMay("operate");
  const queries = useQueryClient();
  const [asking, setAsking] = useState<"cancel" | "undo" | null>(null);
  const job = useJob(machine, number);
  const log = useInfiniteQuery({
    queryKey: ["job", machine, number, "whole log"],
    queryFn: ({ pageParam, signal }) => calls.jobLog(machine, number, pageParam, signal),
    initialPageParam: 0,
    getNextPageParam: (page) => page.next ?? undefined,
  });
  const act = useMutation({
    mutationFn: (action: string) => calls.controlJob(machine, number, action),
    onSuccess: (found, action) => {
      void queries.invalidateQueries({ queryKey: ["job", machine] });
      void queries.invalidateQueries({ queryKey: ["jobs"] });
      setAsking(null);
      if (action === "undo") go({ to: "/jobs/$machine/$number", params: { machine, number: String(found.job) } });
    },
  });
  const found = job.data;
  const state = found?.state;
  const { refetch } = log;
  const before = useRef(found?.done);
  useEffect(() => {
    if (before.current !== found?.done) void refetch();
    before.current = found?.done;
  }, [found?.done, refetch]);
  const rows = log.data?.pages.flatMap((page) => page.entries) ?? [];
  return (
    <Page
      title={s.number(number)}
      heading={found ? <JobTitle job={{ ...found, machine }} /> : s.number(number)}
      about={
        <>
          {s.number(number)} {strings.queue.on} <Foreign text={machine} />
          {found && (
            <>
              {" · "}
              <Foreign text={found.asker} most={60} /> · <Moment at={found.created} />
            </>
          )}
        </>
      }
      actions={
        mayOperate &&
        found && (
          <>
            {state === "running" && (
              <Button variant="default" onClick={() => act.mutate("pause")}>
                {s.pause}
              </Button>
            )}
            {state === "paused" && <Button onClick={() => act.mutate("resume")}>{s.resume}</Button>}
            {!isOver(state) && (
              <Button variant="default" color="red" onClick={() => setAsking("cancel")}>
                {s.cancel}…
              </Button>
            )}
            {found.undoable && isOver(state) && (
              <Button variant="default" onClick={() => setAsking("undo")}>
                {s.undo}…
              </Button>
            )}
          </>
        )
      }
    >
      {job.error && <Failure error={job.error} retry={() => void job.refetch()} />}
      <Age updated={job.dataUpdatedAt} failed={Boolean(job.error)} />
      {act.error && <Failure error={act.error} />}
      {!found && !job.error && <Waiting />}
      {found && (
        <section className="panel" aria-label={s.progressLabel}>
          <JobProgress job={found} />
          {found.dry_run && (
            <p className="gap-above">
              <StateMark state="preview" /> {s.preview}
            </p>
          )}
          {log.data?.pages[0] && <Ways log={log.data.pages[0]} machine={machine} />}
          {found.undone_by > 0 && (
            <p className="gap-above">
              {s.undoneBy}{" "}
              <Link to="/jobs/$machine/$number" params={{ machine, number: String(found.undone_by) }}>
                {s.number(found.undone_by)}
              </Link>
            </p>
          )}
        </section>
      )}
      {log.error && <Failure error={log.error} />}
      <div className="panel flush grows table-panel">
        <Table
          label={s.log}
          columns={columns(machine, rows)}
          total={rows.length}
          row={(index) => rows[index]}
          keyOf={(entry) => `${entry.queue}/${entry.lookup_identifier}`}
          onSeen={(_, last) => {
            if (last >= rows.length - 10 && log.hasNextPage && !log.isFetching) void log.fetchNextPage();
          }}
          empty={log.isFetching ? strings.loading : s.noEntry}
          height={38}
        />
      </div>
      {asking && (
        <Dialog title={asking === "cancel" ? s.cancel : s.undo} onClose={() => setAsking(null)}>
          <Notice tone="warn">
            <p>{asking === "cancel" ? s.aboutCancel : s.aboutUndo}</p>
          </Notice>
          <div className="dialog-actions">
            <Button variant="default" onClick={() => setAsking(null)}>
              {strings.close}
            </Button>
            <Button
              color={asking === "cancel" ? "red" : undefined}
              loading={act.isPending}
              onClick={() => act.mutate(asking)}
            >
              {asking === "cancel" ? s.cancel : s.undo}
            </Button>
          </div>
        </Dialog>
      )}
    </Page>
  );
}
