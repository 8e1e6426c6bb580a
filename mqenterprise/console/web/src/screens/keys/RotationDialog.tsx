import { Button, SegmentedControl } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Fragment, type ReactNode, useEffect, useRef, useState } from "react";
import { calls } from "../../api/calls";
import { useMay } from "../../api/session";
import type { Keys, Rotation, RotationAction, RotationRun } from "../../api/types";
import { Dialog } from "../../parts/Dialog";
import { Failure, Notice, StateMark, Waiting } from "../../parts/Notices";
import { Foreign } from "../../parts/Texts";
import { visible } from "../../parts/text";
import { strings } from "../../strings";
import { KeyName, KeyTable } from "./KeyTables";
import { RotationPlan } from "./RotationPlan";

const s = strings.keys;
const ACTIONS: readonly RotationAction[] = ["rotate", "rollback", "retire"];
const FAST = 400;

/** A rotation of a node's keys: its plan, and its start where the node permits it. Private keys never come here. */
export function RotationDialog({
  machine,
  keys,
  onClose,
}: {
  machine: string;
  keys: Keys | undefined;
  onClose: () => void;
}): ReactNode {
  const mayAdminister = useMay("administer");
  const rotation = useQuery({
    queryKey: ["rotation", machine],
    queryFn: ({ signal }) => calls.rotation(machine, signal),
    enabled: mayAdminister,
    gcTime: 0,
    retry: false,
    refetchOnWindowFocus: false,
    refetchInterval: (query) => (query.state.data?.run?.state === "running" ? FAST : false),
  });
  const found = rotation.data;
  return (
    <Dialog title={s.rotation(visible(machine))} onClose={onClose} wide>
      {keys && <KeyTable keys={keys.keys} />}
      {found?.permitted ? (
        <Permitted machine={machine} rotation={found} error={rotation.error} onClose={onClose} />
      ) : mayAdminister && rotation.isPending ? (
        <Waiting />
      ) : (
        <>
          {rotation.error && <Failure error={rotation.error} retry={() => void rotation.refetch()} />}
          <Commands machine={machine} keys={keys} note={mayAdminister ? s.notPermitted : s.needsRole} />
        </>
      )}
    </Dialog>
  );
}

function Permitted({
  machine,
  rotation,
  error,
  onClose,
}: {
  machine: string;
  rotation: Rotation;
  error: unknown;
  onClose: () => void;
}): ReactNode {
  const [action, setAction] = useState<RotationAction>("rotate");
  // The run whose progress and result are shown: started here, or by somebody else while the dialog is open.
  const [followed, setFollowed] = useState<string | null>(null);
  const isSent = useRef(false);
  const queries = useQueryClient();
  const again = () => queries.invalidateQueries({ queryKey: ["rotation", machine] });
  const start = useMutation({
    mutationFn: (version: number) => calls.rotate(machine, action, version),
    onSuccess: (started) => setFollowed(started.begun),
    onSettled: () => {
      isSent.current = false;
      return again();
    },
  });
  const confirm = (version: number) => {
    if (isSent.current) return; // the second half of a double click
    isSent.current = true;
    start.mutate(version);
  };
  const { plan, run } = rotation;
  const state = run?.state;
  if (run !== null && state === "running" && followed !== run.begun) setFollowed(run.begun);
  useEffect(() => {
    if (state !== undefined && state !== "running") void queries.invalidateQueries({ queryKey: ["keys", machine] });
  }, [queries, machine, state]);
  const isFollowed = run !== null && followed === run.begun;
  if (isFollowed || start.isPending)
    return (
      <>
        {error ? <Failure error={error} /> : null}
        {isFollowed ? <Progress run={run} /> : <Waiting />}
        <div className="dialog-actions">
          <Button onClick={onClose} data-autofocus>
            {strings.close}
          </Button>
        </div>
      </>
    );
  return (
    <>
      <SegmentedControl
        aria-label={s.action}
        size="xs"
        value={action}
        onChange={(value) => {
          start.reset();
          setAction(value as RotationAction);
        }}
        data={ACTIONS.map((value) => ({ value, label: s.actions[value] }))}
      />
      {rotation.fault !== null && (
        <Notice
          tone="bad"
          action={
            <Button size="compact-sm" variant="default" onClick={() => void again()}>
              {strings.again}
            </Button>
          }
        >
          <p>
            <Foreign text={rotation.fault} most={600} />
          </p>
        </Notice>
      )}
      {run?.fault && (
        <Notice tone="warn">
          <p>
            {s.failed} <Foreign text={run.fault} most={600} />
          </p>
        </Notice>
      )}
      {start.error && <Failure error={start.error} />}
      {plan && <RotationPlan action={action} steps={plan[action]} />}
      <div className="dialog-actions">
        <Button variant="default" onClick={onClose}>
          {strings.cancel}
        </Button>
        <Button
          color={action === "retire" ? "red" : undefined}
          disabled={!plan?.[action].length}
          onClick={() => plan && confirm(plan.version)}
        >
          {s.confirm[action](visible(machine))}
        </Button>
      </div>
    </>
  );
}

function Progress({ run }: { run: RotationRun }): ReactNode {
  return (
    <div role="status">
      <p className="row">
        <StateMark state={run.state} />
        <strong>{run.state === "failed" ? s.actions[run.action] : s[run.state][run.action]}</strong>
        <span className="dim">
          {s.startedBy} <Foreign text={run.who} most={80} />
        </span>
      </p>
      {run.state === "running" && <p>{s.progress[run.stage]}</p>}
      {run.fault !== null && (
        <Notice tone="bad">
          <p>
            {s.failed} <Foreign text={run.fault} most={600} />
          </p>
        </Notice>
      )}
      <ul>
        {run.changes.map((change) => (
          <li key={change.fingerprint}>
            {s.purposes[change.purpose] ?? <Foreign text={change.purpose} most={40} />}{" "}
            <KeyName fingerprint={change.fingerprint} /> {s.nowIs}{" "}
            <strong>{{ ...s.states, ...s.later }[change.state] ?? <Foreign text={change.state} most={40} />}</strong>
          </li>
        ))}
      </ul>
    </div>
  );
}

/** A name of a computer as one word of a shell: whatever stands in it, it stays one. */
function quoted(name: string): string {
  return /^[A-Za-z0-9][A-Za-z0-9._-]*$/.test(name) ? name : `'${visible(name).replaceAll("'", "'\\''")}'`;
}

/** The plan of a rotation in general, and the commands that do it where the keys are. */
function Commands({ machine, keys, note }: { machine: string; keys: Keys | undefined; note: string }): ReactNode {
  const command = (what: string) => `mqenterprise keys ${what} ${quoted(machine)}`;
  return (
    <>
      {keys?.keys.some((key) => key.state === "next") && <p>{s.nextIs}</p>}
      <p>{s.plan}</p>
      <ol>
        {s.steps(s.interval).map((step) => (
          <li key={step}>{step}</li>
        ))}
      </ol>
      <p>{s.where}</p>
      <dl className="facts">
        {(
          [
            [s.first, "status"],
            [s.begin, "rotate"],
            [s.end, "retire"],
            [s.back, "rollback"],
          ] as const
        ).map(([title, what]) => (
          <Fragment key={what}>
            <dt>{title}</dt>
            <dd className="mono">{command(what)}</dd>
          </Fragment>
        ))}
      </dl>
      <p className="dim">{note}</p>
    </>
  );
}
