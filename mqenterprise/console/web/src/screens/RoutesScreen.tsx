import { Button, MultiSelect, SegmentedControl, Select } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo } from "react";
import { calls } from "../api/calls";
import type { Explanation, Journey, Overview, WaitingRow } from "../api/types";
import { EnterpriseMap } from "../map/EnterpriseMap";
import type { MapSite } from "../map/model";
import { count } from "../parts/format";
import { Failure, Notice, Waiting } from "../parts/Notices";
import { Age, DirectoryNotice, StaleNotice } from "../parts/Stale";
import { Foreign, Moment } from "../parts/Texts";
import { sentence, visible } from "../parts/text";
import { useSearch } from "../router";
import { Page } from "../shell/Page";
import { strings } from "../strings";
import { paced, REFRESH, timed, useEnterprise, useOverview } from "./enterprise";

const s = strings.routes;
const MOST_SHOWN = 100;

/** Where messages go, and where they would go if something were down; drawn on the map. */
export function RoutesScreen(): ReactNode {
  const [search, setSearch] = useSearch("/routes");
  const overview = useOverview();
  const { sites, links } = useEnterprise(overview.data);
  const mode = search.without !== undefined || search.links !== undefined ? "simulate" : "explain";
  const machines = useMemo(() => options(overview.data?.nodes.map((node) => node.machine) ?? []), [overview.data]);
  const siteOf = useMemo(() => new Map(overview.data?.nodes.map((node) => [node.machine, node.site])), [overview.data]);
  const change = (values: Partial<typeof search>) => setSearch((old) => ({ ...old, ...values }));
  const explanation = useQuery({
    queryKey: ["explain", search.from, search.to],
    queryFn: ({ signal }) => calls.explain(search.from ?? "", search.to ?? "", signal),
    enabled: mode === "explain" && Boolean(search.from && search.to),
    refetchInterval: REFRESH,
  });
  const down = (search.without ?? "").split("\n").filter(Boolean);
  const cut = (search.links ?? "").split("\n").filter(Boolean);
  const simulation = useQuery({
    queryKey: ["simulate", search.without, search.links],
    queryFn: ({ signal }) => timed(calls.simulate(down, cut, signal)),
    refetchInterval: paced,
    enabled: mode === "simulate" && down.length + cut.length > 0,
  });
  const way = explanation.data && wayOf(explanation.data.path, siteOf);
  const shown = useMemo(
    () => (mode === "simulate" ? imagined(sites, down, simulation.data?.cut_off ?? []) : sites),
    [mode, sites, down, simulation.data],
  );
  const shownLinks =
    mode === "simulate"
      ? links.map((link) => (cut.includes(`${link.first}-${link.second}`) ? { ...link, state: "down" as const } : link))
      : links;
  return (
    <Page title={s.title} about={s.about}>
      <SegmentedControl
        className="self-start"
        aria-label={s.mode}
        value={mode}
        onChange={(value) => setSearch(() => (value === "simulate" ? { without: "" } : {}))}
        data={[
          { value: "explain", label: s.explain },
          { value: "simulate", label: s.simulate },
        ]}
      />
      {mode === "explain" ? (
        <div className="row end">
          <Select
            className="stretch"
            searchable
            selectFirstOptionOnChange
            label={s.from}
            value={search.from ?? null}
            onChange={(value) => change({ from: value ?? undefined })}
            data={machines}
          />
          <Select
            className="stretch"
            searchable
            selectFirstOptionOnChange
            label={s.to}
            value={search.to ?? null}
            onChange={(value) => change({ to: value ?? undefined })}
            data={machines}
          />
          <Button
            variant="default"
            disabled={!search.from || !search.to}
            onClick={() => change({ from: search.to, to: search.from })}
          >
            {s.swap}
          </Button>
        </div>
      ) : (
        <div className="row end">
          <MultiSelect
            className="stretch"
            searchable
            label={s.down}
            value={down}
            onChange={(values) => change({ without: values.join("\n") })}
            data={machines}
          />
          <MultiSelect
            className="stretch"
            searchable
            label={s.cut}
            value={cut}
            onChange={(values) => change({ links: values.join("\n") || undefined, without: search.without ?? "" })}
            data={links.map((link) => ({
              value: `${link.first}-${link.second}`,
              label: `${visible(link.first)} – ${visible(link.second)}`,
            }))}
          />
        </div>
      )}
      {overview.error && <Failure error={overview.error} />}
      <Age updated={overview.dataUpdatedAt} failed={Boolean(overview.error)} />
      <DirectoryNotice directory={overview.data?.directory} />
      <div className="map-screen">
        <section className="panel flush map-panel" aria-label={strings.map.title}>
          <EnterpriseMap label={strings.map.label} sites={shown} links={shownLinks} {...(way && { way })} />
        </section>
        <section className="panel routes-panel" aria-label={s.result}>
          {mode === "explain" ? (
            <>
              {!search.from || !search.to ? <p className="dim">{s.choose}</p> : null}
              {explanation.isFetching && !explanation.data && <Waiting />}
              {explanation.error && <Failure error={explanation.error} />}
              {explanation.data && (
                <>
                  <div role="status">
                    {explanation.data.arrives ? (
                      <p>
                        <strong>{s.arrives(explanation.data.cost)}</strong>
                      </p>
                    ) : (
                      <Notice tone="bad">
                        <p>{s.never}</p>
                      </Notice>
                    )}
                    <Now explanation={explanation.data} />
                  </div>
                  <ol className="steps">
                    {explanation.data.hops.map((hop) => (
                      <li key={hop.machine}>
                        <strong>
                          <Foreign text={hop.machine} />
                        </strong>{" "}
                        <span className="dim">
                          <Foreign text={hop.sites.join(", ")} most={60} />
                        </span>
                        {hop.next && (
                          <div>
                            {s.sendsTo} <Foreign text={hop.next} />
                            {hop.link && (
                              <span className="dim">
                                {" "}
                                {s.byLink} <Foreign text={hop.link.join(" – ")} most={80} />;{" "}
                                {hop.cost_without_link === null ? s.noOther : s.otherwise(hop.cost_without_link)}
                              </span>
                            )}
                          </div>
                        )}
                        {hop.problem && (
                          <div className="state bad wrap">
                            <Foreign text={hop.problem} most={300} />
                          </div>
                        )}
                        <details>
                          <summary>{s.rules}</summary>
                          <ul>
                            {hop.considered.map((rule) => (
                              <li key={rule.rule}>
                                {rule.applies ? <strong>{strings.yes}: </strong> : `${strings.no}: `}
                                <Foreign text={rule.why} most={300} />{" "}
                                <span className="dim">({rule.rule.replaceAll("_", " ")})</span>
                              </li>
                            ))}
                          </ul>
                          <p className="dim">{hop.section}</p>
                        </details>
                        {hop.alternatives.length > 0 && (
                          <div className="dim">
                            {s.instead} <Foreign text={hop.alternatives.join(", ")} most={200} />
                          </div>
                        )}
                      </li>
                    ))}
                  </ol>
                </>
              )}
            </>
          ) : (
            <>
              {down.length + cut.length === 0 && <p className="dim">{s.chooseDown}</p>}
              {simulation.isFetching && !simulation.data && <Waiting />}
              {simulation.error && <Failure error={simulation.error} />}
              {simulation.data && (
                <>
                  <Notice tone={simulation.data.waiting.length ? "bad" : "good"}>
                    <p role="status">
                      {s.outcome(
                        count(simulation.data.journeys),
                        count(simulation.data.changed.length),
                        count(simulation.data.waiting.length),
                      )}
                    </p>
                    {simulation.data.cut_off.length > 0 && (
                      <p>
                        {s.cutOff} <Foreign text={simulation.data.cut_off.join(", ")} most={400} />
                      </p>
                    )}
                  </Notice>
                  <Journeys title={s.waiting} journeys={simulation.data.waiting} />
                  <Journeys title={s.changed} journeys={simulation.data.changed} />
                  {simulation.data.gates.length > 0 && (
                    <div className="scrolls">
                      <table className="plain">
                        <caption>{s.gates}</caption>
                        <thead>
                          <tr>
                            <th scope="col">{strings.map.gate}</th>
                            <th scope="col" className="numeric">
                              {s.before}
                            </th>
                            <th scope="col" className="numeric">
                              {s.after}
                            </th>
                          </tr>
                        </thead>
                        <tbody>
                          {simulation.data.gates.map((gate) => (
                            <tr key={gate.gate}>
                              <td>
                                <Foreign text={gate.gate} />{" "}
                                {gate.overloaded && <span className="state warn">{s.overloaded}</span>}
                              </td>
                              <td className="numeric">{count(gate.before)}</td>
                              <td className="numeric">{count(gate.after)}</td>
                            </tr>
                          ))}
                        </tbody>
                      </table>
                    </div>
                  )}
                </>
              )}
            </>
          )}
        </section>
      </div>
    </Page>
  );
}

/** What messages on the way wait for at present, by its nodes. */
function Now({ explanation }: { explanation: Explanation }): ReactNode {
  const { path } = explanation;
  const last = path.at(-1) ?? "";
  const waiting = useQuery({
    queryKey: ["waiting", path],
    queryFn: ({ signal }) => timed(calls.waiting({ at: path }, signal)),
    refetchInterval: paced,
  });
  const rows = (waiting.data?.waiting ?? []).filter(
    (row) =>
      !row.queue ||
      (row.machine !== row.at && path.includes(row.machine)) ||
      row.destination.split("\\")[0] === last ||
      (row.at === last && row.machine === last),
  );
  return (
    <>
      {waiting.error && <Failure error={waiting.error} />}
      <StaleNotice stale={waiting.data?.stale} />
      {rows
        .filter(isFirst)
        .slice(0, MOST_SHOWN)
        .map((row) => (
          <Notice key={`${row.at}/${row.queue}`} tone="bad">
            <p>
              {s.waitsAt} <Foreign text={row.at} />: <Foreign text={sentence(row.sentence)} most={400} />{" "}
              {row.since && (
                <>
                  {s.since} <Moment at={row.since} ago />.{" "}
                </>
              )}
              <Foreign text={sentence(row.step)} most={300} />
            </p>
          </Notice>
        ))}
      {waiting.data && !rows.length && !waiting.data.stale.length && <p>{s.nothingWaits}</p>}
    </>
  );
}

/** Whether no queue before it waits at the same node for the same reason. */
function isFirst(row: WaitingRow, index: number, rows: readonly WaitingRow[]): boolean {
  return rows.findIndex((one) => one.at === row.at && one.sentence === row.sentence) === index;
}

function options(names: readonly string[]): { value: string; label: string }[] {
  return names.map((name) => ({ value: name, label: visible(name) }));
}

function wayOf(path: readonly string[], siteOf: ReadonlyMap<string, Overview["nodes"][number]["site"]>): string[] {
  const sites = path.map((machine) => siteOf.get(machine)).filter((site) => site !== undefined);
  return sites.filter((site, index) => site !== sites[index - 1]);
}

/** The map as it would be. */
function imagined(sites: readonly MapSite[], down: readonly string[], cutOff: readonly string[]): MapSite[] {
  return sites.map((site) => ({
    ...site,
    state: cutOff.includes(site.name) ? "down" : site.state,
    nodes: site.nodes.map((node) => (down.includes(node.name) ? { ...node, state: "down" as const } : node)),
  }));
}

function Journeys({ title, journeys }: { title: string; journeys: readonly Journey[] }): ReactNode {
  if (!journeys.length) return null;
  return (
    <details open={journeys.length < 12}>
      <summary>
        {title} ({count(journeys.length)})
      </summary>
      <ul className="journeys">
        {journeys.slice(0, MOST_SHOWN).map((journey) => (
          <li key={`${journey.from}\n${journey.to}`}>
            <Foreign text={journey.from} /> → <Foreign text={journey.to} />
            <div className="dim">
              {s.before}: <Foreign text={journey.before.problem ?? journey.before.path.join(" → ")} most={300} />
            </div>
            <div className="dim">
              {s.after}: <Foreign text={journey.after.problem ?? journey.after.path.join(" → ")} most={300} />
            </div>
          </li>
        ))}
      </ul>
      {journeys.length > MOST_SHOWN && <p className="dim">{strings.map.more(journeys.length - MOST_SHOWN)}</p>}
    </details>
  );
}
