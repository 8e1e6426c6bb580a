import { SegmentedControl } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { calls } from "../api/calls";
import type { Job } from "../api/types";
import { count } from "../parts/format";
import { Failure, StateMark } from "../parts/Notices";
import { Age, Nothing, StaleNotice } from "../parts/Stale";
import { type Column, Table } from "../parts/Table";
import { Foreign, Moment } from "../parts/Texts";
import { Page } from "../shell/Page";
import { strings } from "../strings";
import { REFRESH } from "./enterprise";
import { shortName } from "./queue/names";

const s = strings.jobs;
const STATES = ["", "running", "paused", "done", "cancelled"] as const;

/** What a job does, in a few words. */
export function JobTitle({ job }: { job: Job }): ReactNode {
  return (
    <>
      {(strings.operation.verb as Record<string, string>)[job.kind] ??
        (job.kind === "undo" ? s.undoOf(job.undoes) : job.kind)}
      {job.dry_run && ` (${s.dryRun})`}{" "}
      <Foreign
        text={job.queues.map((queue) => shortName({ machine: job.machine, pathname: queue })).join(", ")}
        most={100}
      />
      {job.target && (
        <>
          {" → "}
          <Foreign text={shortName({ machine: job.machine, pathname: job.target })} most={80} />
        </>
      )}
    </>
  );
}

const COLUMNS: readonly Column<Job>[] = [
  {
    id: "title",
    title: s.job,
    least: 170,
    grow: 4,
    rank: 9,
    cell: (job) => (
      <Link to="/jobs/$machine/$number" params={{ machine: job.machine, number: String(job.job) }}>
        <JobTitle job={job} />
      </Link>
    ),
  },
  {
    id: "machine",
    title: strings.queues.machine,
    least: 120,
    grow: 1,
    rank: 6,
    cell: (job) => <Foreign text={`${job.machine} / ${job.job}`} most={60} />,
  },
  { id: "state", title: s.state, least: 110, rank: 8, cell: (job) => <StateMark state={job.state} /> },
  {
    id: "progress",
    title: s.progressLabel,
    least: 130,
    rank: 5,
    numeric: true,
    cell: (job) => `${count(job.scanned)} / ${count(job.total)}`,
  },
  { id: "failed", title: s.failedTitle, least: 80, rank: 4, numeric: true, cell: (job) => count(job.failed) },
  { id: "asker", title: s.asker, least: 120, grow: 1, rank: 2, cell: (job) => <Foreign text={job.asker} most={60} /> },
  { id: "created", title: s.created, least: 206, rank: 3, cell: (job) => <Moment at={job.created} /> },
];

export function JobsScreen(): ReactNode {
  const { state = "" } = useSearch({ from: "/jobs" });
  const navigate = useNavigate({ from: "/jobs" });
  const jobs = useQuery({
    queryKey: ["jobs"],
    queryFn: ({ signal }) => calls.jobs(signal),
    refetchInterval: REFRESH,
    placeholderData: keepPreviousData,
  });
  const found = (jobs.data?.jobs ?? []).filter((job) => !state || job.state === state);
  return (
    <Page title={s.title} about={s.about}>
      <SegmentedControl
        className="self-start"
        aria-label={s.state}
        value={state}
        onChange={(value) => void navigate({ search: { state: value || undefined }, replace: true })}
        data={STATES.map((one) => ({ value: one, label: one === "" ? strings.queues.all : strings.state[one] }))}
      />
      {jobs.error && <Failure error={jobs.error} retry={() => void jobs.refetch()} />}
      <Age updated={jobs.dataUpdatedAt} failed={Boolean(jobs.error)} />
      <StaleNotice stale={jobs.data?.stale} />
      <div className="panel flush grows table-panel">
        <Table
          label={s.title}
          columns={COLUMNS}
          total={found.length}
          row={(index) => found[index]}
          keyOf={(job) => `${job.machine}/${job.job}`}
          onOpen={(job) =>
            void navigate({ to: "/jobs/$machine/$number", params: { machine: job.machine, number: String(job.job) } })
          }
          empty={jobs.data ? <Nothing text={s.none} stale={jobs.data.stale} /> : strings.loading}
        />
      </div>
    </Page>
  );
}
