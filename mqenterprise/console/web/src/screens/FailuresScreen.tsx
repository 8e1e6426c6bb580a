import { Button, Checkbox, SegmentedControl } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { calls } from "../api/calls";
import { useMay } from "../api/session";
import type { FailureGroup } from "../api/types";
import { count } from "../parts/format";
import { Failure, Notice, Waiting } from "../parts/Notices";
import { Age, Nothing, StaleNotice } from "../parts/Stale";
import { Foreign, Moment } from "../parts/Texts";
import { Link, useSearch } from "../router";
import { Page } from "../shell/Page";
import { strings } from "../strings";
import { paced, timed } from "./enterprise";
import { type Chosen, OperationDialog } from "./operation/OperationDialog";
import { shortName } from "./queue/names";

const s = strings.failures;
/** Dead letters, poison subqueues, and queues named for errors: the same as of `message failures`. */
const FAILURE_QUEUES = ["system$;dead*", "*;poison", "error*", "*.error"];
const WAYS = ["reason", "exception", "queue", "sender"] as const;

function nameOf(group: FailureGroup): string {
  return [group.reason, group.exception, group.queue, group.sender].filter(Boolean).join(" · ") || s.unknown;
}

function keyOf(group: FailureGroup): string {
  return JSON.stringify([group.machine, group.where, group.queues]);
}

/** All messages of the queues of failures, node by node. */
function wholeOf(groups: readonly FailureGroup[]): Chosen[] {
  return [...Map.groupBy(groups, (group) => group.machine)].map(([machine, here]) => ({
    machine,
    queues: [...new Set(here.flatMap((group) => group.queues))],
  }));
}

/** Failed messages in groups: why, where, how many, and whether it goes on. */
export function FailuresScreen(): ReactNode {
  const [{ by = "reason" }, setSearch] = useSearch("/failures");
  const mayOperate = useMay("operate");
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [waiting, setWaiting] = useState<{
    kind: "return" | "delete";
    chosen: readonly Chosen[];
    at: number;
  } | null>(null);
  const failures = useQuery({
    queryKey: ["failures", by],
    queryFn: ({ signal }) =>
      timed(calls.failures({ queue: FAILURE_QUEUES, by: by === "reason" ? ["reason", "queue"] : [by] }, signal)),
    refetchInterval: paced,
    placeholderData: keepPreviousData,
  });
  const groups = failures.data?.groups ?? [];
  const chosenOf = (group: FailureGroup): Chosen => ({
    machine: group.machine,
    queues: group.queues,
    where: group.where,
  });
  const some = groups.filter((group) => selected.has(keyOf(group)));
  const total = groups.reduce((sum, group) => sum + group.count, 0);
  const next = waiting?.chosen[waiting.at];
  return (
    <Page
      title={s.title}
      about={failures.data && s.about(count(total), count(groups.length))}
      actions={
        mayOperate &&
        groups.length > 0 && (
          <>
            <Button
              disabled={some.length === 0}
              title={s.aboutReturn}
              onClick={() => setWaiting({ kind: "return", chosen: some.map(chosenOf), at: 0 })}
            >
              {s.returnSome(some.length)}
            </Button>
            <Button
              variant="default"
              title={s.aboutReturn}
              onClick={() => setWaiting({ kind: "return", chosen: wholeOf(groups), at: 0 })}
            >
              {s.returnAll}
            </Button>
          </>
        )
      }
    >
      <SegmentedControl
        className="self-start"
        aria-label={s.by}
        value={by}
        onChange={(value) => {
          setSelected(new Set());
          setSearch(() => ({ by: value }));
        }}
        data={WAYS.map((way) => ({ value: way, label: s.ways[way] }))}
      />
      {failures.error && <Failure error={failures.error} retry={() => void failures.refetch()} />}
      <Age updated={failures.dataUpdatedAt} failed={Boolean(failures.error)} />
      <StaleNotice stale={failures.data?.stale} />
      {!failures.data && !failures.error && <Waiting />}
      {failures.data && groups.length === 0 && (
        <Notice tone={failures.data.stale.length ? "plain" : "good"}>
          <p role="status">
            <Nothing text={s.none} stale={failures.data.stale} />
          </p>
        </Notice>
      )}
      <ul className="cards">
        {groups.map((group) => {
          const key = keyOf(group);
          const grows = group.last_hour > group.hour_before;
          return (
            <li key={key} className="panel failure">
              {mayOperate && (
                <Checkbox
                  aria-label={s.select}
                  checked={selected.has(key)}
                  onChange={(event) => {
                    const chosen = event.currentTarget.checked;
                    setSelected((old) => {
                      const changed = new Set(old);
                      if (chosen) changed.add(key);
                      else changed.delete(key);
                      return changed;
                    });
                  }}
                />
              )}
              <div className="grow">
                <h2>
                  <Foreign text={nameOf(group)} most={240} />
                </h2>
                <p className="dim">
                  <Foreign text={group.machine} most={60} /> ·{" "}
                  {group.queues.map((queue, index) => (
                    <span key={queue}>
                      {index > 0 && ", "}
                      <Link
                        to="/queues/$machine/$queue"
                        params={{ machine: group.machine, queue }}
                        search={{ where: group.where }}
                      >
                        <Foreign text={shortName({ machine: group.machine, pathname: queue })} most={100} />
                      </Link>
                    </span>
                  ))}
                </p>
                <p>
                  {s.first} <Moment at={group.first} /> · {s.last} <Moment at={group.last} ago />
                </p>
              </div>
              <div className="failure-count">
                <strong>{count(group.count)}</strong>
                <span className={grows ? "state bad" : "state"}>
                  {s.lastHour(count(group.last_hour), count(group.hour_before))}
                </span>
                {mayOperate && (
                  <span className="row">
                    <Button
                      size="compact-sm"
                      title={s.aboutReturn}
                      onClick={() => setWaiting({ kind: "return", chosen: [chosenOf(group)], at: 0 })}
                    >
                      {strings.operation.verb.return}…
                    </Button>
                    <Button
                      size="compact-sm"
                      variant="default"
                      color="red"
                      title={strings.operation.about.delete}
                      onClick={() => setWaiting({ kind: "delete", chosen: [chosenOf(group)], at: 0 })}
                    >
                      {strings.operation.verb.delete}…
                    </Button>
                  </span>
                )}
              </div>
            </li>
          );
        })}
      </ul>
      {waiting && next && (
        <OperationDialog
          // One after another: each node says itself what would happen to its messages.
          key={JSON.stringify(next)}
          kind={waiting.kind}
          chosen={next}
          onClose={() => {
            setWaiting(waiting.at + 1 < waiting.chosen.length ? { ...waiting, at: waiting.at + 1 } : null);
            void failures.refetch();
          }}
          onCancel={() => setWaiting(null)}
          {...(waiting.chosen.length > 1 && { step: [waiting.at + 1, waiting.chosen.length] as const })}
        />
      )}
    </Page>
  );
}
