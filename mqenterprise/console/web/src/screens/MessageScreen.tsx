import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { calls } from "../api/calls";
import { useMay } from "../api/session";
import { Failure, Notice, Waiting } from "../parts/Notices";
import { Age } from "../parts/Stale";
import { Foreign } from "../parts/Texts";
import { go, hrefOf, Link, useParams } from "../router";
import { Page } from "../shell/Page";
import { strings } from "../strings";
import { REFRESH } from "./enterprise";
import { EditDialog } from "./operation/EditDialog";
import { type Kind, OperationDialog } from "./operation/OperationDialog";
import { Bodies, Facts } from "./message/Bodies";
import { useNeighbours } from "./message/useNeighbours";
import { shortName } from "./queue/names";
import { Reason } from "./WaitingScreen";

const s = strings.message;

export function MessageScreen(): ReactNode {
  const { machine, queue, lookup } = useParams("/queues/$machine/$queue/$lookup");
  const mayOperate = useMay("operate");
  const maySeeBodies = useMay("bodies");
  const [operation, setOperation] = useState<Kind | "edit" | null>(null);
  const message = useQuery({
    queryKey: ["message", machine, queue, lookup, maySeeBodies],
    queryFn: ({ signal }) => calls.message(machine, queue, lookup, maySeeBodies, signal),
  });
  // Whether it is still there is asked without its body.
  const there = useQuery({
    queryKey: ["message", machine, queue, lookup, "there"],
    queryFn: ({ signal }) => calls.message(machine, queue, lookup, false, signal),
    refetchInterval: REFRESH,
    enabled: message.isSuccess,
  });
  const stuck = useQuery({
    queryKey: ["queue", machine, queue],
    queryFn: ({ signal }) => calls.queue(machine, queue, signal),
    refetchInterval: REFRESH,
  }).data?.waiting;
  const error = message.error ?? there.error;
  const back = () => go({ to: "/queues/$machine/$queue", params: { machine, queue } });
  const found = message.data;
  const neighbours = useNeighbours(machine, queue, lookup);
  return (
    <Page
      title={found?.label || s.title}
      heading={found?.label ? <Foreign text={found.label} /> : s.title}
      about={
        <>
          {s.in}{" "}
          <Link to="/queues/$machine/$queue" params={{ machine, queue }}>
            <Foreign text={shortName({ machine, pathname: queue })} />
          </Link>{" "}
          {strings.queue.on} <Foreign text={machine} />
        </>
      }
      actions={
        <>
          {(["previous", "next"] as const).map((way) => (
            <Button
              key={way}
              variant="default"
              disabled={!neighbours[way]}
              onClick={() => {
                const other = neighbours[way];
                if (other)
                  go({
                    to: "/queues/$machine/$queue/$lookup",
                    params: { machine, queue, lookup: other },
                    replace: true,
                  });
              }}
            >
              {strings.messages[way]}
            </Button>
          ))}
          {mayOperate && maySeeBodies && found && !found.unreadable && (
            <Button onClick={() => setOperation("edit")}>{s.edit}</Button>
          )}
          {mayOperate &&
            found &&
            (["move", "copy", "return", "delete"] as const).map((kind) => (
              <Button
                key={kind}
                variant="default"
                color={kind === "delete" ? "red" : undefined}
                title={strings.operation.about[kind]}
                onClick={() => setOperation(kind)}
              >
                {strings.operation.verb[kind]}…
              </Button>
            ))}
          {found && (
            <Button
              component="a"
              href={hrefOf({ to: "/life", search: { id: found.identifier } })}
              variant="default"
              title={strings.life.about}
            >
              {s.life}
            </Button>
          )}
        </>
      }
    >
      {error && <Failure error={error} retry={() => void (message.error ? message : there).refetch()} />}
      <Age updated={there.dataUpdatedAt || message.dataUpdatedAt} failed={Boolean(error)} />
      {!found && !message.error && <Waiting />}
      {stuck && (
        <Notice tone="warn">
          <Reason waiting={stuck} />
        </Notice>
      )}
      {found?.unreadable && (
        <Notice tone="bad">
          <p>
            {s.unreadable} <Foreign text={found.unreadable} />
          </p>
        </Notice>
      )}
      {found &&
        (maySeeBodies ? (
          <Bodies message={found} />
        ) : (
          <Notice tone="plain">
            <p>{s.noBodies}</p>
          </Notice>
        ))}
      {found && <Facts message={found} />}
      {operation === "edit" && found && (
        <EditDialog machine={machine} queue={queue} message={found} onClose={() => setOperation(null)} onDone={back} />
      )}
      {operation && operation !== "edit" && (
        <OperationDialog
          kind={operation}
          chosen={{ machine, queues: [queue], messages: [lookup] }}
          onClose={() => setOperation(null)}
        />
      )}
    </Page>
  );
}
