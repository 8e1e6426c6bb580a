import { keepPreviousData, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { calls } from "../api/calls";
import type { WaitingDocument } from "../api/types";
import { count } from "../parts/format";
import { Failure, Notice, Waiting } from "../parts/Notices";
import { Age, Nothing, StaleNotice } from "../parts/Stale";
import { Foreign, Moment, None } from "../parts/Texts";
import { sentence } from "../parts/text";
import { Link, useSearch } from "../router";
import { Page } from "../shell/Page";
import { strings } from "../strings";
import { paced, timed } from "./enterprise";
import { listName } from "./queue/names";

const s = strings.waiting;

/** Why messages wait, on one screen: at all nodes, at one, for a machine, or at a link. */
export function WaitingScreen(): ReactNode {
  const [{ at, machine, link }] = useSearch("/waiting");
  const ends = link?.split("\n") ?? [];
  const waiting = useQuery({
    queryKey: ["waiting", at, machine, link],
    queryFn: ({ signal }) => timed(calls.waiting({ at: at ? [at] : [], machine, link: ends }, signal)),
    refetchInterval: paced,
    placeholderData: keepPreviousData,
  });
  const rows = waiting.data?.waiting ?? [];
  const total = rows.reduce((sum, row) => sum + row.messages, 0);
  return (
    <Page
      title={s.title}
      about={
        <>
          {waiting.data && s.about(count(total), count(rows.length))} {link && s.atLink(ends.join(" – "))}
          {at && s.at(at)}
          {machine && s.for(machine)} {(link ?? at ?? machine) && <Link to="/waiting">{s.all}</Link>}
        </>
      }
    >
      {waiting.error && <Failure error={waiting.error} retry={() => void waiting.refetch()} />}
      <Age updated={waiting.dataUpdatedAt} failed={Boolean(waiting.error)} />
      <StaleNotice stale={waiting.data?.stale} />
      {!waiting.data && !waiting.error && <Waiting />}
      {waiting.data && rows.length === 0 && (
        <Notice tone={waiting.data.stale.length ? "plain" : "good"}>
          <p role="status">
            <Nothing text={s.none} stale={waiting.data.stale} />
          </p>
        </Notice>
      )}
      <ul className="cards">
        {rows.map((row) => (
          <li key={`${row.at}/${row.queue}/${row.reason}`} className="panel">
            <h2>
              {row.queue ? (
                <Link to="/queues/$machine/$queue" params={{ machine: row.at, queue: row.queue }}>
                  <Foreign
                    text={listName({
                      machine: row.at,
                      pathname: row.queue,
                      queue_type: "",
                      destination: row.destination,
                    })}
                    most={140}
                  />
                </Link>
              ) : (
                s.wholeNode
              )}{" "}
              <span className="dim">
                {strings.queue.on} <Foreign text={row.at} most={60} />
              </span>
            </h2>
            <Reason waiting={row} />
          </li>
        ))}
      </ul>
    </Page>
  );
}

/** Why the messages of a queue wait: for which machine, since when, what to do. */
export function Reason({ waiting }: { waiting: WaitingDocument }): ReactNode {
  return (
    <>
      <p>
        {waiting.reason !== "paused" && <strong>{s.reasons[waiting.reason]} </strong>}
        <Foreign text={sentence(waiting.sentence)} most={400} />
      </p>
      <dl className="facts">
        <dt>{s.messages}</dt>
        <dd>{count(waiting.messages)}</dd>
        <dt>{s.machine}</dt>
        <dd>{waiting.machine ? <Foreign text={waiting.machine} most={80} /> : <None />}</dd>
        <dt>{s.since}</dt>
        <dd>{waiting.since ? <Moment at={waiting.since} ago /> : <None />}</dd>
        <dt>{s.nextTry}</dt>
        <dd>{waiting.next_try ? <Moment at={waiting.next_try} /> : s.noTry}</dd>
        <dt>{s.step}</dt>
        <dd>
          <Foreign text={sentence(waiting.step)} most={300} />
        </dd>
      </dl>
    </>
  );
}
