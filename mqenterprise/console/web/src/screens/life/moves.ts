import { calls } from "../../api/calls";
import type { AuditEntry, Found, Job } from "../../api/types";

const KINDS = ["move", "return", "undo"];
const MOST_JOBS = 30;
const MOST_PAGES = 10;
const MOST_ENTRIES = 1000;

/** A move of a message as it is, from one queue of its node to another. */
export interface Move {
  readonly at: string | null;
  readonly who: string;
  readonly from: string;
  readonly to: string;
  /** The number of the job that did it. */
  readonly job?: number;
}

/** The move of a message by a job, if the log of the job has it. */
async function moveBy(job: Job, lookup: string, signal: AbortSignal): Promise<Move | null> {
  let after: number | null = 0;
  for (let page = 0; after !== null && page < MOST_PAGES; page += 1) {
    const log: Awaited<ReturnType<typeof calls.jobLog>> = await calls.jobLog(job.machine, job.job, after, signal);
    const entry = log.entries.find(
      (one) => one.lookup_identifier === lookup && ["moved", "undone"].includes(one.result) && one.way !== "sent anew",
    );
    if (entry)
      return { at: job.ended ?? job.created, who: job.asker, from: entry.queue, to: entry.target, job: job.job };
    after = log.next;
  }
  return null;
}

/** The move that an entry of the audit log tells of. */
function moveIn(entry: AuditEntry, lookup: string): Move | null {
  if (entry.action !== "move_message" || entry.outcome !== "done") return null;
  try {
    if (BigInt(entry.target.lookup ?? "") !== BigInt(lookup)) return null;
  } catch {
    return null;
  }
  return {
    at: entry.time,
    who: entry.who ?? "",
    from: entry.target.name ?? "",
    to: String(entry.details.move_to ?? ""),
  };
}

/** The moves of a message on its node, as far as the person may know of them: the oldest first. */
export async function movesOf(found: Found, withAudit: boolean, signal: AbortSignal): Promise<Move[]> {
  const { machine, message } = found;
  if (!message.moves) return [];
  const arrival = message.arrival_time ?? "";
  const [jobs, audit] = await Promise.all([
    calls.jobs(signal, { machine: [machine] }),
    withAudit ? calls.audit({ machine: [machine], limit: MOST_ENTRIES }, signal) : { entries: [] },
  ]);
  const asked = jobs.jobs
    .filter((job) => KINDS.includes(job.kind) && !job.dry_run && job.done > 0)
    .filter((job) => job.ended === null || Date.parse(job.ended) >= Date.parse(arrival))
    .slice(0, MOST_JOBS);
  const moves = await Promise.all(asked.map((job) => moveBy(job, message.lookup_identifier, signal)));
  return [...moves, ...audit.entries.map((entry) => moveIn(entry, message.lookup_identifier))]
    .filter((move) => move !== null)
    .sort((one, other) => Date.parse(one.at ?? "") - Date.parse(other.at ?? ""));
}
