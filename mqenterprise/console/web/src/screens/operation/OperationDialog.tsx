import { Button } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, type ReactNode, useEffect, useState } from "react";
import { calls } from "../../api/calls";
import type { Job, JobLog, JobLogEntry, NewJob } from "../../api/types";
import { Dialog } from "../../parts/Dialog";
import { count } from "../../parts/format";
import { Failure, Notice, Waiting } from "../../parts/Notices";
import { JobProgress } from "../../parts/Progress";
import { Foreign } from "../../parts/Texts";
import { sentence } from "../../parts/text";
import { Link } from "../../router";
import { strings } from "../../strings";
import { wordOf } from "../queue/names";
import { TargetInput } from "./TargetInput";
import { placeOf, useDoubt } from "./targets";
import { isOver, useJob, useJobLog } from "./useJob";

const s = strings.operation;

export type Kind = NewJob["kind"];

/** Which messages an operation means: those of a queue that were selected, that meet conditions, or all. */
export interface Chosen {
  readonly machine: string;
  readonly queues: readonly string[];
  readonly messages?: readonly string[];
  readonly where?: readonly string[];
}

const MOST_WAYS = 12;
/** The result of a dry run. */
const WOULD_BE = "would be done";
const NEEDS_TARGET: readonly Kind[] = ["move", "copy"];
const TAKES_TARGET: readonly Kind[] = ["move", "copy", "return"];

/**
 * An operation in three steps: where to, what would happen (the node's own dry run), how far it is. One that needs no
 * target begins with the second.
 */
export function OperationDialog({
  kind,
  chosen,
  onClose,
  onCancel = onClose,
  onDone,
  step,
}: {
  kind: Kind;
  chosen: Chosen;
  onClose: () => void;
  onCancel?: () => void;
  onDone?: () => void;
  /** Which operation this is, and of how many that are asked for one after another. */
  step?: readonly [number, number];
}): ReactNode {
  const [target, setTarget] = useState("");
  const queries = useQueryClient();
  const wanted = (dry: boolean): NewJob => ({
    kind,
    queues: chosen.queues,
    ...(chosen.where?.length ? { where: chosen.where } : {}),
    ...(chosen.messages ? { messages: chosen.messages } : {}),
    ...(target.trim() ? { target: target.trim() } : {}),
    dry_run: dry,
  });
  const rehearse = useMutation({ mutationFn: () => calls.startJob(chosen.machine, wanted(true)) });
  const start = useMutation({
    mutationFn: () => calls.startJob(chosen.machine, wanted(false)),
    onSuccess: () => onDone?.(),
    onSettled: () => queries.invalidateQueries({ predicate: (query) => query.queryKey[0] !== "session" }),
  });
  const { mutate: show } = rehearse;
  const isReady = !NEEDS_TARGET.includes(kind);
  useEffect(() => {
    if (isReady) show();
  }, [isReady, show]);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!rehearse.isPending && !rehearse.isSuccess && (isReady || target.trim())) show();
  };
  const rehearsal = useJob(chosen.machine, rehearse.data?.job);
  const job = useJob(chosen.machine, start.data?.job);
  const whole = chosen.messages === undefined && !chosen.where?.length;
  const title = s.title[kind];
  const doubt = useDoubt(chosen.machine, target, rehearse.isSuccess);

  return (
    <Dialog title={title} onClose={start.data ? onClose : onCancel} wide>
      {step && <p className="dim">{s.step(...step)}</p>}
      <p>
        {chosen.messages ? s.selected(count(chosen.messages.length)) : whole ? s.everything : s.matching} {s.of}{" "}
        {chosen.queues.map((queue) => (
          <strong key={queue}>
            <Foreign text={queue} most={120} />{" "}
          </strong>
        ))}
        {s.on}{" "}
        <strong>
          <Foreign text={chosen.machine} />
        </strong>
      </p>
      {chosen.where?.map((condition) => (
        <p key={condition} className="mono">
          <Foreign text={condition} most={300} />
        </p>
      ))}
      {start.data ? (
        <Under machine={chosen.machine} job={job.data ?? start.data} error={job.error} onClose={onClose} />
      ) : (
        <form onSubmit={submit}>
          {TAKES_TARGET.includes(kind) && (
            <TargetInput
              machine={chosen.machine}
              label={s.target}
              description={kind === "return" ? s.returnHelp : s.targetHelp}
              value={target}
              onChange={(value) => {
                setTarget(value);
                rehearse.reset();
              }}
              required={NEEDS_TARGET.includes(kind)}
              focused
            />
          )}
          <p className="gap-above">{s.about[kind]}</p>
          {rehearse.error && <Failure error={rehearse.error} />}
          {rehearse.data && (
            <Rehearsal
              machine={chosen.machine}
              job={rehearsal.data ?? rehearse.data}
              error={rehearsal.error}
              kind={kind}
              isDoubted={!target.trim()}
            />
          )}
          {doubt && (
            <div className="gap-above">
              <Notice tone="warn">
                <p role="status">{doubt}</p>
              </Notice>
            </div>
          )}
          {start.error && <Failure error={start.error} />}
          <div className="dialog-actions">
            <Button variant="default" onClick={onCancel}>
              {strings.cancel}
            </Button>
            {isOver(rehearsal.data?.state) ? (
              <Button
                color={kind === "delete" ? "red" : undefined}
                loading={start.isPending}
                disabled={rehearsal.data?.state !== "done" || rehearsal.data.done === 0}
                onClick={() => start.mutate()}
              >
                {s.confirm[kind](count(rehearsal.data?.done ?? 0))}
              </Button>
            ) : (
              <Button
                type="submit"
                loading={rehearse.isPending || rehearse.isSuccess}
                disabled={!isReady && !target.trim()}
              >
                {s.rehearse}
              </Button>
            )}
          </div>
        </form>
      )}
    </Dialog>
  );
}

/** What the node says that it would do. */
function Rehearsal({
  machine,
  job,
  error,
  kind,
  isDoubted,
}: {
  machine: string;
  job: Job;
  error: unknown;
  kind: Kind;
  /** Whether the targets are the messages' own, which nobody has looked at yet. */
  isDoubted: boolean;
}): ReactNode {
  const log = useJobLog(machine, job.job, 0, isOver(job.state));
  if (error) return <Failure error={error} />;
  if (!isOver(job.state)) return <JobProgress job={job} />;
  if (!log.data) return log.error ? <Failure error={log.error} /> : <Waiting />;
  return (
    <Notice tone={kind === "delete" || job.failed > 0 ? "warn" : "plain"}>
      <p role="status">
        <strong>{s.would[kind](count(job.done))}</strong> {job.failed > 0 && s.wouldFail(count(job.failed))}
        {job.done === 0 && job.failed === 0 && s.nothing}
      </p>
      {(kind !== "delete" || job.failed > 0) && <Ways log={log.data} machine={machine} isDoubted={isDoubted} />}
      <p className="dim">{s.later}</p>
    </Notice>
  );
}

/** What becomes of the messages, or has become of them, in groups. */
export function Ways({
  log,
  machine,
  isDoubted = false,
}: {
  log: JobLog;
  machine: string;
  isDoubted?: boolean;
}): ReactNode {
  const ways = Map.groupBy(log.entries, (entry) =>
    JSON.stringify([entry.result, entry.way, entry.target, entry.detail ?? ""]),
  );
  return (
    <ul>
      {[...ways.values()].slice(0, MOST_WAYS).map((entries) => (
        <Way
          key={entries[0]?.lookup_identifier}
          entries={entries}
          machine={machine}
          more={log.next !== null}
          isDoubted={isDoubted}
        />
      ))}
    </ul>
  );
}

/** How a message gets into its target, and what it keeps by that. */
export function wayWord(way: string): string {
  return (s.ways as Record<string, string>)[way] ?? way;
}

function Way({
  entries,
  machine,
  more,
  isDoubted,
}: {
  entries: readonly JobLogEntry[];
  machine: string;
  more: boolean;
  isDoubted: boolean;
}): ReactNode {
  const one = entries[0];
  if (!one) return null;
  const isPromise = one.result === WOULD_BE && one.way !== "";
  return (
    <li>
      {count(entries.length)}
      {more ? ` ${s.ofTheFirst}` : ""}:{" "}
      <Foreign text={[!isPromise && one.result, wayWord(one.way)].filter(Boolean).join(", ")} />
      {one.target && (
        <>
          {" → "}
          <Foreign text={wordOf(machine, one.target)} most={200} />
        </>
      )}
      {one.detail && (
        <>
          {". "}
          <Foreign text={sentence(one.detail)} most={300} />
        </>
      )}
      {isDoubted && isPromise && one.target && <Doubt machine={machine} target={one.target} />}
    </li>
  );
}

/** What is doubtful about the destination that messages have themselves. */
function Doubt({ machine, target }: { machine: string; target: string }): ReactNode {
  const doubt = useDoubt(machine, target, placeOf(target, machine) !== null);
  return (
    doubt && (
      <Notice tone="warn">
        <p role="status">{doubt}</p>
      </Notice>
    )
  );
}

function Under({
  machine,
  job,
  error,
  onClose,
}: {
  machine: string;
  job: Job;
  error: unknown;
  onClose: () => void;
}): ReactNode {
  const log = useJobLog(machine, job.job, 0, isOver(job.state));
  return (
    <>
      {error ? <Failure error={error} /> : null}
      <JobProgress job={job} />
      {log.data && <Ways log={log.data} machine={machine} />}
      <div className="dialog-actions">
        <Link to="/jobs/$machine/$number" params={{ machine, number: String(job.job) }} onClick={onClose}>
          {s.show(job.job)}
        </Link>
        <Button onClick={onClose} data-autofocus>
          {strings.close}
        </Button>
      </div>
    </>
  );
}
