import { TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo } from "react";
import { calls } from "../api/calls";
import { useSession } from "../api/session";
import type { BridgeState, NodeState, Overview } from "../api/types";
import { EnterpriseMap } from "../map/EnterpriseMap";
import { byTrouble, type MapLink, type MapSite, worst } from "../map/model";
import { count, rate } from "../parts/format";
import { Failure, Notice, StateMark, Waiting } from "../parts/Notices";
import { Age, DirectoryNotice } from "../parts/Stale";
import { Foreign, Moment, None } from "../parts/Texts";
import { Link, useSearch } from "../router";
import { Page } from "../shell/Page";
import { strings } from "../strings";
import { timed, useEnterprise, useOverview } from "./enterprise";

const s = strings.map;
const MOST_NAMED = 8;
/** Milliseconds from one comparison of directory and declaration to the next. */
const COMPARED = 300_000;

export function MapScreen(): ReactNode {
  const overview = useOverview();
  const { sites, links } = useEnterprise(overview.data);
  const [{ at, find }, setSearch] = useSearch("/");
  const select = (id: string | undefined) => setSearch((old) => ({ ...old, at: id === at ? undefined : id }));
  const site = sites.find((one) => one.id === at);
  const link = links.find((one) => one.id === at);
  return (
    <Page
      title={s.title}
      about={
        overview.data && (
          <>
            {s.about(sites.length, links.length, overview.data.nodes.length)} <Drift />
          </>
        )
      }
    >
      {overview.error && <Failure error={overview.error} retry={() => void overview.refetch()} />}
      <Age updated={overview.dataUpdatedAt} failed={Boolean(overview.error)} />
      {overview.data ? (
        <>
          <Troubles overview={overview.data} sites={sites} links={links} />
          <div className="map-screen grows">
            <section className="panel flush map-panel" aria-label={s.title}>
              <EnterpriseMap label={s.label} sites={sites} links={links} selected={at} onSelect={select} />
              <Legend />
            </section>
            <section className="panel flush map-list" aria-label={s.list}>
              {site ? (
                <SiteDetail site={site} nodes={overview.data.nodes} links={links} onBack={() => select(undefined)} />
              ) : link ? (
                <LinkDetail link={link} onBack={() => select(undefined)} />
              ) : (
                <SiteList
                  sites={sites}
                  links={links}
                  find={find ?? ""}
                  onFind={(text) => setSearch((old) => ({ ...old, find: text || undefined }))}
                  onSelect={select}
                />
              )}
            </section>
          </div>
        </>
      ) : (
        !overview.error && <Waiting />
      )}
    </Page>
  );
}

/** What is down, before anything else. */
function Troubles({ overview, sites, links }: { overview: Overview; sites: MapSite[]; links: MapLink[] }): ReactNode {
  const of = (state: string) => overview.nodes.filter((node) => node.state === state);
  const [down, trouble, unknown] = [of("down"), of("trouble"), of("unknown")];
  const cut = links.filter((link) => link.state === "down");
  const state = worst([...sites.map((site) => site.state), ...links.map((link) => link.state)]);
  const names = (nodes: readonly NodeState[]) =>
    nodes.slice(0, MOST_NAMED).map((node, index) => (
      <span key={node.machine}>
        {index > 0 && ", "}
        <Foreign text={node.machine} most={40} />
      </span>
    ));
  return (
    <>
      <DirectoryNotice directory={overview.directory} />
      <div aria-live="polite">
        {state === "up" ? (
          <Notice tone="good">
            <p>{s.well}</p>
          </Notice>
        ) : (
          <Notice tone={down.length || cut.length ? "bad" : "warn"}>
            {down.length > 0 && (
              <p>
                <strong>{s.down(down.length, overview.nodes.length)}</strong> {names(down)}
                {down.length > MOST_NAMED && `, ${s.more(down.length - MOST_NAMED)}`}
              </p>
            )}
            {cut.length > 0 && (
              <p>
                <strong>{s.cut(cut.length)}</strong>{" "}
                {cut.slice(0, MOST_NAMED).map((link, index) => (
                  <span key={link.id}>
                    {index > 0 && ", "}
                    <Foreign text={link.first} most={30} /> – <Foreign text={link.second} most={30} />
                  </span>
                ))}
              </p>
            )}
            {trouble.length > 0 && (
              <p>
                <strong>{s.trouble(trouble.length)}</strong> {names(trouble)}
              </p>
            )}
            {unknown.length > 0 && (
              <p>
                <strong>{s.unknown(unknown.length)}</strong> {names(unknown)}
              </p>
            )}
            {!down.length && !cut.length && !trouble.length && !unknown.length && <p>{s.linkTrouble}</p>}
          </Notice>
        )}
      </div>
    </>
  );
}

/** How much of the directory others have changed, where a declaration is given; in no line that the map would lack. */
function Drift(): ReactNode {
  const enabled = useSession().features.includes("plan");
  const plan = useQuery({
    queryKey: ["plan"],
    queryFn: ({ signal }) => timed(calls.plan(signal)),
    refetchInterval: COMPARED,
    staleTime: COMPARED,
    enabled,
  });
  if (!plan.data?.steps.length) return null;
  return (
    <>
      · <strong>{s.drift(plan.data.steps.length)}</strong> <Link to="/plan">{s.showPlan}</Link>
    </>
  );
}

function Legend(): ReactNode {
  return (
    <div className="legend map-legend" aria-hidden="true">
      <span>◆ {s.gate}</span>
      <span>■ {s.router}</span>
      <span>● {s.machine}</span>
      <span>✓ {strings.state.up}</span>
      <span>! {strings.state.trouble}</span>
      <span>✕ {strings.state.down}</span>
      <span>? {strings.state.unknown}</span>
      <span>{s.width}</span>
    </div>
  );
}

function SiteList({
  sites,
  links,
  find,
  onFind,
  onSelect,
}: {
  sites: MapSite[];
  links: MapLink[];
  find: string;
  onFind: (text: string) => void;
  onSelect: (id: string) => void;
}): ReactNode {
  const wanted = find.toLowerCase();
  const found = useMemo(
    () =>
      byTrouble(
        sites.filter(
          (site) =>
            site.name.toLowerCase().includes(wanted) ||
            site.nodes.some((node) => node.name.toLowerCase().includes(wanted)),
        ),
      ),
    [sites, wanted],
  );
  const ways = useMemo(
    () =>
      byTrouble(
        links
          .filter((link) => `${link.first} ${link.second}`.toLowerCase().includes(wanted))
          .map((link) => ({ ...link, name: `${link.first} ${link.second}` })),
      ),
    [links, wanted],
  );
  return (
    <>
      <div className="list-head">
        <TextInput
          aria-label={s.find}
          placeholder={s.find}
          value={find}
          onChange={(event) => onFind(event.currentTarget.value)}
        />
      </div>
      <h2 className="list-title">{s.sites}</h2>
      <ul className="list">
        {found.map((site) => (
          <li key={site.id}>
            <button type="button" className="entry" onClick={() => onSelect(site.id)}>
              <span className="grow">
                <Foreign text={site.name} most={80} />
                <br />
                <span className="dim">{site.nodes.length ? s.nodes(site.nodes.length) : s.noNode}</span>
              </span>
              <SiteMark site={site} />
            </button>
          </li>
        ))}
      </ul>
      <h2 className="list-title">{s.links}</h2>
      <ul className="list">
        {ways.map((link) => (
          <li key={link.id}>
            <button type="button" className="entry" onClick={() => onSelect(link.id)}>
              <span className="grow">
                <Foreign text={link.first} most={50} /> – <Foreign text={link.second} most={50} />
                <br />
                <span className="dim">
                  {s.cost(link.cost)}
                  {link.rate !== null && <> · {s.perSecond(rate(link.rate))}</>}
                  {link.waiting !== null && <> · {s.waiting(count(link.waiting))}</>}
                </span>
              </span>
              <StateMark state={link.state} />
            </button>
          </li>
        ))}
      </ul>
    </>
  );
}

/** The state of a site. One that is down in part is not down, and one without nodes has no state. */
function SiteMark({ site }: { site: MapSite }): ReactNode {
  if (site.nodes.length === 0) return null;
  const down = site.nodes.filter((node) => node.state === "down").length;
  const isPart = site.state === "down" && down < site.nodes.length;
  return <StateMark state={site.state} {...(isPart && { word: s.downOf(down, site.nodes.length) })} />;
}

function Back({ onBack }: { onBack: () => void }): ReactNode {
  return (
    <button type="button" className="link-button" onClick={onBack}>
      ‹ {s.back}
    </button>
  );
}

function SiteDetail({
  site,
  nodes,
  links,
  onBack,
}: {
  site: MapSite;
  nodes: readonly NodeState[];
  links: MapLink[];
  onBack: () => void;
}): ReactNode {
  const here = nodes.filter((node) => node.site === site.id);
  return (
    <div className="detail">
      <Back onBack={onBack} />
      <h2>
        <Foreign text={site.name} /> <SiteMark site={site} />
      </h2>
      {site.nodes.length === 0 && <p>{s.noNode}</p>}
      {site.foreign && <p>{s.foreign}</p>}
      {links
        .filter((link) => link.first === site.id || link.second === site.id)
        .map((link) => (
          <p key={link.id}>
            {s.linkTo} <Foreign text={link.first === site.id ? link.second : link.first} />: {s.cost(link.cost)},{" "}
            <StateMark state={link.state} />
          </p>
        ))}
      {here.map((node) => (
        <section key={node.machine} className="node-card">
          <h3>
            <Link to="/nodes/$machine" params={{ machine: node.machine }}>
              <Foreign text={node.machine} />
            </Link>{" "}
            <StateMark state={node.state} />
          </h3>
          {node.reason && !node.warnings.includes(node.reason) && (
            <p>
              <Foreign text={node.reason} most={300} />
            </p>
          )}
          {node.warnings.map((warning) => (
            <p key={warning}>
              <Foreign text={warning} most={300} />
            </p>
          ))}
          <dl className="facts">
            <dt>{s.part}</dt>
            <dd>{[node.gate && s.gate, node.routing_server && s.router].filter(Boolean).join(", ") || s.machine}</dd>
            <dt>{s.messages}</dt>
            <dd>{node.message_count === null ? <None /> : count(node.message_count)}</dd>
            <dt>{s.dead}</dt>
            <dd>{node.dead_letter_count === null ? <None /> : count(node.dead_letter_count)}</dd>
            <dt>{s.traffic}</dt>
            <dd>
              {node.arrived_rate === null ? <None /> : s.inOut(rate(node.arrived_rate), rate(node.left_rate ?? 0))}
            </dd>
            <dt>{s.asOf}</dt>
            <dd>
              <Moment at={node.as_of} ago />
            </dd>
          </dl>
          {node.bridges.length > 0 && (
            <>
              <h4>{s.bridges}</h4>
              <ul className="list-plain">
                {node.bridges.map((bridge) => (
                  <Bridge key={bridge.name} bridge={bridge} />
                ))}
              </ul>
            </>
          )}
          <p>
            <Link to="/waiting" search={{ at: node.machine }}>
              {s.why}
            </Link>
          </p>
          <Link to="/queues" search={{ machine: node.machine }}>
            {s.queuesOf}
          </Link>
        </section>
      ))}
    </div>
  );
}

/** A bridge to an AMQP peer: what it connects, whether it does, and what it has carried. */
function Bridge({ bridge }: { bridge: BridgeState }): ReactNode {
  const [from, to] = [bridge.queue, bridge.address];
  return (
    <li className="bridge">
      <Foreign text={bridge.name} most={60} />{" "}
      <StateMark
        state={bridge.connected ? "up" : "down"}
        word={bridge.connected ? strings.state.connected : strings.state.down}
      />
      <br />
      <Foreign text={bridge.direction === "out" ? from : to} most={80} />
      {" → "}
      <Foreign text={bridge.direction === "out" ? to : from} most={80} /> {s.at}{" "}
      <Foreign text={bridge.peer} most={120} />
      <br />
      <span className="dim">
        {bridge.carried !== null && <>{s.carried(count(bridge.carried))}, </>}
        {bridge.rejected ? <>{s.rejected(count(bridge.rejected))}, </> : null}
        {s.since} <Moment at={bridge.since} ago />
      </span>
      {bridge.reason && (
        <p>
          <Foreign text={bridge.reason} most={300} />
        </p>
      )}
    </li>
  );
}

function LinkDetail({ link, onBack }: { link: MapLink; onBack: () => void }): ReactNode {
  return (
    <div className="detail">
      <Back onBack={onBack} />
      <h2>
        <Foreign text={link.first} /> – <Foreign text={link.second} /> <StateMark state={link.state} />
      </h2>
      {link.reason && (
        <p>
          <Foreign text={link.reason} most={400} />
        </p>
      )}
      <dl className="facts">
        <dt>{s.costWord}</dt>
        <dd>{link.cost}</dd>
        <dt>{s.gates}</dt>
        <dd>
          {link.gates.length
            ? link.gates.map((gate, index) => (
                <span key={gate}>
                  {index > 0 && ", "}
                  <Foreign text={gate} />
                </span>
              ))
            : s.noGate}
        </dd>
        <dt>{s.traffic}</dt>
        <dd>{link.rate === null ? <None /> : s.perSecond(rate(link.rate))}</dd>
        <dt>{s.waitingWord}</dt>
        <dd>{link.waiting === null ? <None /> : count(link.waiting)}</dd>
      </dl>
      <p>
        <Link to="/waiting" search={{ link: `${link.first}\n${link.second}` }}>
          {s.why}
        </Link>
      </p>
      <p>
        <Link to="/routes" search={{ links: `${link.first}-${link.second}` }}>
          {s.simulate}
        </Link>
      </p>
    </div>
  );
}
