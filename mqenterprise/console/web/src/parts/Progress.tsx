import { Progress as Bar } from "@mantine/core";
import type { ReactNode } from "react";
import type { Job } from "../api/types";
import { strings } from "../strings";
import { count, rate, span } from "./format";
import { StateMark } from "./Notices";
import { Foreign } from "./Texts";

const s = strings.jobs;

/** How many messages a job is through with, and what became of them. */
export function outcomeOf(job: Job): string {
  return s.outcome(count(job.done), (s.past as Record<string, string>)[job.kind] ?? strings.state.done, job.dry_run);
}

/** How far a job is, in a bar and in words that screen readers are told. */
export function JobProgress({ job }: { job: Job }): ReactNode {
  const share = job.total ? Math.min(100, (100 * job.scanned) / job.total) : job.state === "done" ? 100 : 0;
  return (
    <div className="job-progress">
      <div className="row">
        <StateMark state={job.state} />
        <span>
          {(job.state !== "done" || job.scanned !== job.done) &&
            `${s.progress(count(job.scanned), count(job.total))}, `}
          {outcomeOf(job)}
        </span>
        {job.failed > 0 && <span className="state bad">{s.failed(count(job.failed))}</span>}
        {job.state === "running" && (
          <span className="dim">
            {s.perSecond(rate(job.rate))}
            {job.seconds_left !== null && `, ${s.left(span(job.seconds_left))}`}
          </span>
        )}
      </div>
      <Bar value={share} mt={6} color={job.failed ? "red" : undefined} aria-label={s.progressLabel} />
      {job.reason && (
        <p className="gap-above">
          <Foreign text={job.reason} />
        </p>
      )}
      <span className="only-readers" role="status">
        {`${(strings.state as Record<string, string>)[job.state] ?? job.state}, ${outcomeOf(job)}`}
      </span>
    </div>
  );
}
