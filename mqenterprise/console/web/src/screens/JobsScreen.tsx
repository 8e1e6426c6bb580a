import { NativeSelect, SegmentedControl } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { calls } from "../api/calls";
import type { Job } from "../api/types";
import { count } from "../parts/format";
import { Failure, StateMark } from "../parts/Notices";
import { outcomeOf } from "../parts/Progress";
import { Age, Nothing, StaleNotice } from "../parts/Stale";
import { type Column, Table } from "../parts/Table";
import { Foreign, Moment } from "../parts/Texts";
import { go, Link, useSearch } from "../router";
import { Page } from "../shell/Page";
import { strings } from "../strings";
import { REFRESH } from "./enterprise";
import { wordOf } from "./queue/names";

const s = strings.jobs;
const PREVIEWS = [
  { value: "", label: strings.previews.without },
  { value: "all", label: strings.previews.all },
  { value: "previews", label: strings.previews.only },
];
const STATES = ["", "running", "paused", "done", "cancelled"] as const;

/** What a job does, in a few words. */
export function JobTitle({ job }: { job: Job }): ReactNode {
  return (
    <>
      {(strings.operation.verb as Record<string, string>)[job.kind] ??
        (job.kind === "undo" ? s.undoOf(job.undoes) : job.kind)}
      {!job.target && job.kind !== "undo" ? ` ${s.from} ` : " "}
      <Foreign text={job.queues.map((queue) => wordOf(job.machine, queue)).join(", ")} most={100} />
      {job.target && (
        <>
          {" → "}
          <Foreign text={wordOf(job.machine, job.target)} most={80} />
        </>
      )}
    </>
  );
}

const COLUMNS: readonly Column<Job>[] = [
  {
    id: "title",
    title: s.job,
    least: 290,
    tight: 170,
    grow: 4,
    rank: 9,
    cell: (job) => (
      <>
        <Link to="/jobs/$machine/$number" params={{ machine: job.machine, number: String(job.job) }}>
          <JobTitle job={job} />
        </Link>
        <br />
        <span className="dim">
          {job.dry_run && <StateMark state="preview" />} {outcomeOf(job)}
          {job.failed > 0 && <span className="failed"> · {s.failed(count(job.failed))}</span>}
        </span>
      </>
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
    title: s.examined,
    least: 130,
    rank: 5,
    numeric: true,
    cell: (job) => `${count(job.scanned)} / ${count(job.total)}`,
  },
  { id: "asker", title: s.asker, least: 120, grow: 1, rank: 2, cell: (job) => <Foreign text={job.asker} most={60} /> },
  { id: "created", title: s.created, least: 206, rank: 3, cell: (job) => <Moment at={job.created} /> },
];

export function JobsScreen(): ReactNode {
  const [{ state = "", show = "" }, setSearch] = useSearch("/jobs");
  const jobs = useQuery({
    queryKey: ["jobs"],
    queryFn: ({ signal }) => calls.jobs(signal),
    refetchInterval: REFRESH,
    placeholderData: keepPreviousData,
  });
  const found = (jobs.data?.jobs ?? []).filter(
    (job) => (!state || job.state === state) && (show === "all" || (show === "previews") === job.dry_run),
  );
  return (
    <Page title={s.title} about={s.about}>
      <div className="row end">
        <SegmentedControl
          aria-label={s.state}
          value={state}
          onChange={(value) => setSearch((old) => ({ ...old, state: value || undefined }))}
          data={STATES.map((one) => ({ value: one, label: one === "" ? strings.queues.all : strings.state[one] }))}
        />
        <NativeSelect
          label={strings.previews.label}
          value={show}
          onChange={(event) => {
            const value = event.currentTarget.value;
            setSearch((old) => ({ ...old, show: value || undefined }));
          }}
          data={PREVIEWS}
        />
      </div>
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
          height={60}
          onOpen={(job) =>
            go({ to: "/jobs/$machine/$number", params: { machine: job.machine, number: String(job.job) } })
          }
          empty={jobs.data ? <Nothing text={s.none} stale={jobs.data.stale} /> : strings.loading}
        />
      </div>
    </Page>
  );
}
