import { Progress } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { calls } from "../api/calls";
import { useSession } from "../api/session";
import type { NodeDocument, NodeState, QueueRow } from "../api/types";
import { count, rate, size } from "../parts/format";
import { Failure, Notice, StateMark, Waiting } from "../parts/Notices";
import { Age, StaleNotice } from "../parts/Stale";
import { Foreign, Moment, None } from "../parts/Texts";
import { sentence } from "../parts/text";
import { Link, useParams } from "../router";
import { Page } from "../shell/Page";
import { strings } from "../strings";
import { REFRESH, useOverview } from "./enterprise";
import { listName } from "./queue/names";

const s = strings.node;
const MOST_QUEUES = 12;
const MOST_PEERS = 8;
/** From here on something is nearly full. */
const NEARLY = 85;

/** The page of a node in an enterprise. */
export function NodeScreen(): ReactNode {
  const { machine } = useParams("/nodes/$machine");
  return <NodePage machine={machine} />;
}

/** The landing page of a node alone. */
export function OwnNode(): ReactNode {
  return <NodePage machine={useSession().enterprise} />;
}

function NodePage({ machine }: { machine: string }): ReactNode {
  const overview = useOverview();
  const state = overview.data?.nodes.find((one) => one.machine.toLowerCase() === machine.toLowerCase());
  const node = useQuery({
    queryKey: ["node", machine],
    queryFn: ({ signal }) => calls.node(machine, signal),
    refetchInterval: REFRESH,
  });
  const quotas = useQuery({
    queryKey: ["quotas", machine],
    queryFn: ({ signal }) => calls.quotas(machine, signal),
    refetchInterval: 4 * REFRESH,
  });
  const peers = useQuery({
    queryKey: ["connections", machine],
    queryFn: ({ signal }) => calls.connections(machine, signal),
    refetchInterval: 2 * REFRESH,
  });
  const queues = useQuery({
    queryKey: ["queues", "of", machine],
    queryFn: ({ signal }) =>
      calls.queues(
        { machine: [machine], sort: "message_count", descending: true, filled: true, limit: MOST_QUEUES },
        signal,
      ),
    refetchInterval: REFRESH,
    placeholderData: keepPreviousData,
  });
  const found = node.data;
  return (
    <Page
      title={machine}
      heading={
        <>
          <Foreign text={machine} /> {state && <StateMark state={state.state} />}
        </>
      }
      about={
        found && (
          <>
            {s.version} <Foreign text={found.version} most={40} /> · <span className="mono">{found.identifier}</span>
          </>
        )
      }
    >
      {node.error && <Failure error={node.error} retry={() => void node.refetch()} />}
      <Age updated={node.dataUpdatedAt} failed={Boolean(node.error)} />
      <Warnings state={state} node={found} />
      {!found && !node.error && <Waiting />}
      {found && (
        <dl className="figures panel">
          <Figure name={strings.map.messages} value={count(found.message_count)} />
          <Figure name={strings.queue.bytes} value={size(found.total_bytes)} />
          <Figure
            name={strings.map.dead}
            value={
              <Link to="/queues" search={{ machine, kind: "dead letters" }}>
                {count(found.dead_letter_count)}
              </Link>
            }
          />
          <Figure
            name={s.outgoing}
            value={
              <Link to="/queues" search={{ machine, kind: "outgoing" }}>
                {count(found.outgoing_queue_count)}
              </Link>
            }
          />
          {state && state.arrived_rate !== null && (
            <Figure
              name={strings.map.traffic}
              value={strings.map.inOut(rate(state.arrived_rate), rate(state.left_rate ?? 0))}
            />
          )}
          <Figure name={s.transactions} value={count(found.transaction_count)} />
        </dl>
      )}
      {found && (
        <div className="columns">
          <section className="panel" aria-label={s.room}>
            <h2>{s.room}</h2>
            <Room name={s.disk} used={found.disk_bytes - found.disk_free_bytes} all={found.disk_bytes} />
            {quotas.data && (
              <>
                <Room name={s.quota} used={quotas.data.quota_used} all={kilobytes(quotas.data.quota)} />
                <Room
                  name={s.journalQuota}
                  used={quotas.data.journal_quota_used}
                  all={kilobytes(quotas.data.journal_quota)}
                />
              </>
            )}
            {quotas.error && <Failure error={quotas.error} />}
          </section>
          <Doors node={found} peers={peers.data?.connections.length} />
          <section className="panel" aria-label={s.queues}>
            <h2>
              <Link to="/queues" search={{ machine, sort: "-message_count" }}>
                {s.queues}
              </Link>
            </h2>
            <StaleNotice stale={queues.data?.stale} />
            {queues.error && <Failure error={queues.error} />}
            {queues.data?.queues.length === 0 && <p className="dim">{s.allEmpty}</p>}
            <ul className="bars">
              {queues.data?.queues.map((row) => (
                <QueueBar key={row.pathname} row={row} most={queues.data.queues[0]?.message_count ?? 0} />
              ))}
            </ul>
          </section>
          <section className="panel" aria-label={s.peers}>
            <h2>{s.peers}</h2>
            {peers.error && <Failure error={peers.error} />}
            {peers.data?.connections.length === 0 && <p className="dim">{s.noPeer}</p>}
            <ul className="list-plain">
              {peers.data?.connections.slice(0, MOST_PEERS).map((one) => (
                <li key={`${one.address}${String(one.incoming)}`}>
                  <Foreign text={one.address} most={60} />{" "}
                  <span className="dim">
                    {one.incoming ? s.incoming : s.leaving}, <Foreign text={one.state} most={30} />
                    {one.encrypted && `, ${s.encrypted}`},{" "}
                    {s.passed(count(one.sent_messages), count(one.received_messages))}
                  </span>
                </li>
              ))}
            </ul>
            {(peers.data?.connections.length ?? 0) > MOST_PEERS && (
              <p className="dim">{strings.map.more((peers.data?.connections.length ?? 0) - MOST_PEERS)}</p>
            )}
          </section>
        </div>
      )}
    </Page>
  );
}

const kilobytes = (value: number | null) => (value === null ? null : value * 1024);

function Figure({ name, value }: { name: string; value: ReactNode }): ReactNode {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

/** What is wrong now, before anything else. */
function Warnings({ state, node }: { state: NodeState | undefined; node: NodeDocument | undefined }): ReactNode {
  const all = [
    ...(state && state.state !== "up" && state.reason ? [state.reason] : []),
    ...(node?.storage_failure ? [node.storage_failure] : []),
    ...(node?.warnings ?? []),
    ...(state?.warnings ?? []),
    ...(node && !node.online ? [s.offline] : []),
    ...(node && !node.ready ? [s.notReady] : []),
  ];
  const texts = [...new Set(all)];
  if (texts.length === 0)
    return (
      state?.state === "up" && (
        <Notice tone="good">
          <p>{s.well}</p>
        </Notice>
      )
    );
  return (
    <Notice tone={state?.state === "down" ? "bad" : "warn"}>
      <ul>
        {texts.map((text) => (
          <li key={text}>
            <Foreign text={sentence(text)} most={400} />
          </li>
        ))}
      </ul>
    </Notice>
  );
}

/** How much of a room is used; without a limit only how much. */
function Room({ name, used, all }: { name: string; used: number; all: number | null }): ReactNode {
  const share = all ? Math.min(100, Math.round((100 * used) / all)) : 0;
  return (
    <div className="room">
      <div className="row">
        <span>{name}</span>
        <span className="dim">{all === null ? s.noLimit(size(used)) : s.used(size(used), size(all), share)}</span>
      </div>
      {all !== null && <Progress value={share} mt={4} aria-label={name} color={share >= NEARLY ? "red" : undefined} />}
    </div>
  );
}

function Doors({ node, peers }: { node: NodeDocument; peers: number | undefined }): ReactNode {
  return (
    <section className="panel" aria-label={s.doors}>
      <h2>{s.doors}</h2>
      <dl className="facts">
        <dt>{s.binary}</dt>
        <dd>
          {peers === undefined ? <None /> : s.connections(peers)}, {node.tls_mode ? s.tls(node.tls_mode) : s.noTls}
        </dd>
        <dt>{s.amqp}</dt>
        <dd>{node.amqp_port ? s.amqpOpen(node.amqp_port, node.amqp_connections, node.amqp_links) : s.closed}</dd>
        <dt>{strings.map.bridges}</dt>
        <dd>
          {node.bridges.length === 0 ? (
            <None />
          ) : (
            s.bridges(node.bridges.length, node.bridges.filter((one) => one.connected).length)
          )}
        </dd>
        <dt>{s.directory}</dt>
        <dd>{node.directory ? <Foreign text={node.directory} most={60} /> : s.noDirectory}</dd>
        {node.failover && (
          <>
            <dt>{s.failover}</dt>
            <dd>
              <Foreign text={node.failover.host} most={60} /> {s.activeSince} <Moment at={node.failover.since} ago />
              <ul className="list-plain">
                {standbys(node.failover).map((text) => (
                  <li key={text} className="dim">
                    <Foreign text={text} most={200} />
                  </li>
                ))}
              </ul>
            </dd>
          </>
        )}
        {node.remote_copy && (
          <>
            <dt>{s.copy}</dt>
            <dd>
              {node.remote_copy.failure ? (
                <Foreign text={node.remote_copy.failure} most={200} />
              ) : (
                s.lag(Math.round(node.remote_copy.lag_seconds))
              )}
            </dd>
          </>
        )}
      </dl>
    </section>
  );
}

/** What the cluster manager says of each other host, or else their names. */
const standbys = ({ host, hosts, standbys }: NonNullable<NodeDocument["failover"]>) =>
  standbys.length > 0 ? standbys : hosts.filter((one) => one !== host).map(s.standsBy);

function QueueBar({ row, most }: { row: QueueRow; most: number }): ReactNode {
  return (
    <li>
      <div className="row">
        <Link to="/queues/$machine/$queue" params={{ machine: row.machine, queue: row.pathname }}>
          <Foreign text={listName(row)} most={80} />
        </Link>
        <span className="dim">
          {count(row.message_count)}
          {row.oldest_arrival && (
            <>
              {" · "}
              {strings.queues.age.toLowerCase()} <Moment at={row.oldest_arrival} ago />
            </>
          )}
        </span>
      </div>
      <Progress value={most ? (100 * row.message_count) / most : 0} size="xs" aria-hidden />
    </li>
  );
}
