import { Button, SegmentedControl, TextInput } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo, useState } from "react";
import { calls } from "../api/calls";
import type { MovingMachine, MovingStep } from "../api/types";
import { EnterpriseMap } from "../map/EnterpriseMap";
import { type MapSite, type Place, PLACES, worst } from "../map/model";
import { count } from "../parts/format";
import { Failure, Notice, StateMark, Waiting } from "../parts/Notices";
import { Age } from "../parts/Stale";
import { Foreign, Moment } from "../parts/Texts";
import { useSearch } from "../router";
import { Page } from "../shell/Page";
import { strings } from "../strings";
import { paced, timed, useEnterprise, useOverview } from "./enterprise";

const s = strings.moving;
/** Steps and machines that are shown before somebody asks for all. */
const FEW = 100;

/** The estate in three colours, and the survey's order of moves with how far each is. */
export function MovingScreen(): ReactNode {
  const [{ at, find = "", place = "" }, setSearch] = useSearch("/moving");
  const moving = useQuery({
    queryKey: ["moving"],
    queryFn: ({ signal }) => timed(calls.moving(signal)),
    refetchInterval: paced,
    placeholderData: keepPreviousData,
  });
  const overview = useOverview();
  const enterprise = useEnterprise(overview.data);
  const machines = moving.data?.machines;
  const sites = useMemo(() => sitesOf(machines ?? [], enterprise.sites), [machines, enterprise.sites]);
  // Whether a link is up does not matter here.
  const links = useMemo(
    () => enterprise.links.map((link) => ({ ...link, state: "up" as const, rate: null, waiting: null })),
    [enterprise.links],
  );
  const wanted = find.toLowerCase();
  const isWanted = (one: { readonly place: Place }) => !place || one.place === place;
  const shown = (machines ?? []).filter(
    (one) =>
      isWanted(one) &&
      (at === undefined || one.site === at) &&
      (at !== undefined || one.name.toLowerCase().includes(wanted)),
  );
  const steps = (moving.data?.order ?? []).filter(
    (step) =>
      isWanted(step) &&
      [step.name, ...step.queues.map((queue) => queue.path)].some((name) => name.toLowerCase().includes(wanted)),
  );
  return (
    <Page
      title={s.title}
      about={
        moving.data && (
          <>
            {s.about} <Moment at={moving.data.taken} />
          </>
        )
      }
    >
      {moving.error && <Failure error={moving.error} retry={() => void moving.refetch()} />}
      <Age updated={moving.dataUpdatedAt} failed={Boolean(moving.error)} />
      {!moving.data && !moving.error && <Waiting />}
      {moving.data && (
        <>
          {moving.data.unread.length > 0 && (
            <Notice tone="warn">
              {moving.data.unread.map((one) => (
                <p key={one}>
                  <Foreign text={one} most={300} />
                </p>
              ))}
            </Notice>
          )}
          <p className="row" role="status">
            {PLACES.map((one) => (
              <span key={one}>
                <StateMark state={one} /> {s.queues(moving.data.queues[one])}
              </span>
            ))}
          </p>
          {moving.data.without_carries && <p className="dim">{s.withoutCarries}</p>}
          <div className="map-screen">
            <section className="panel flush map-panel" aria-label={s.map}>
              <EnterpriseMap
                label={strings.map.label}
                sites={sites}
                links={links}
                selected={at}
                onSelect={(id) => setSearch((old) => ({ ...old, at: id === at ? undefined : id }))}
              />
              <div className="legend map-legend" aria-hidden="true">
                <span>W {strings.state.windows}</span>
                <span>→ {strings.state.moving}</span>
                <span>✓ {strings.state.node}</span>
              </div>
            </section>
            <section className="panel flush map-list" aria-label={s.machines}>
              <h2 className="list-title">{at === undefined ? s.machines : s.machinesOf(at)}</h2>
              {at !== undefined && (
                <p className="list-title">
                  <button
                    type="button"
                    className="link-button"
                    onClick={() => setSearch((old) => ({ ...old, at: undefined }))}
                  >
                    ‹ {s.everywhere}
                  </button>
                </p>
              )}
              <Few items={shown}>{(one) => <MachineEntry key={one.name} machine={one} />}</Few>
            </section>
          </div>
          <section className="panel stack" aria-label={s.order}>
            <h2>{s.order}</h2>
            <div className="row">
              <SegmentedControl
                aria-label={s.show}
                value={place}
                onChange={(value) => setSearch((old) => ({ ...old, place: value || undefined }))}
                data={[
                  { value: "", label: s.all },
                  ...PLACES.map((one) => ({ value: one, label: strings.state[one] })),
                ]}
              />
              <TextInput
                aria-label={s.find}
                placeholder={s.find}
                value={find}
                onChange={(event) => {
                  const text = event.currentTarget.value;
                  setSearch((old) => ({ ...old, find: text || undefined }));
                }}
              />
            </div>
            {steps.length === 0 && <p role="status">{s.none}</p>}
            <Few items={steps}>{(step) => <Step key={step.position} step={step} />}</Few>
          </section>
        </>
      )}
    </Page>
  );
}

/** The first of many, and a button for the rest. */
function Few<T>({ items, children }: { items: readonly T[]; children: (item: T) => ReactNode }): ReactNode {
  const [isWhole, setWhole] = useState(false);
  return (
    <>
      <ul className="list">{(isWhole ? items : items.slice(0, FEW)).map(children)}</ul>
      {!isWhole && items.length > FEW && (
        <Button variant="default" onClick={() => setWhole(true)}>
          {s.whole(count(items.length))}
        </Button>
      )}
    </>
  );
}

function MachineEntry({ machine }: { machine: MovingMachine }): ReactNode {
  return (
    <li className="entry">
      <span className="grow">
        <Foreign text={machine.name} most={80} />
        <br />
        <span className="dim">
          {machine.site && (
            <>
              <Foreign text={machine.site} most={60} /> ·{" "}
            </>
          )}
          {machine.queues ? s.moved(machine.moved, machine.queues) : s.noQueue}
          {machine.reason && machine.place !== "node" && (
            <>
              {" "}
              · <Foreign text={machine.reason} most={120} />
            </>
          )}
        </span>
      </span>
      <StateMark state={machine.place} />
    </li>
  );
}

function Step({ step }: { step: MovingStep }): ReactNode {
  return (
    <li className="entry">
      <div className="grow">
        <strong>
          {step.position}. {s.what[step.what]} <Foreign text={step.name} most={120} />
        </strong>
        <ul className="list-plain">
          {step.queues.map((queue) => (
            <li key={queue.path}>
              {step.queues.length > 1 && (
                <>
                  <Foreign text={queue.path} most={120} /> <StateMark state={queue.place} />{" "}
                </>
              )}
              {queue.target && (
                <span className="dim">
                  {s.to} <Foreign text={queue.target} most={60} />
                  {queue.note && ": "}
                  <Foreign text={queue.note} most={120} />
                </span>
              )}
            </li>
          ))}
        </ul>
        <details>
          <summary>{s.why}</summary>
          <ul>
            {step.reasons.map((reason) => (
              <li key={reason}>
                <Foreign text={reason} most={300} />
              </li>
            ))}
          </ul>
        </details>
      </div>
      <StateMark state={step.place} />
    </li>
  );
}

/** The sites of the directory with the machines of the survey; machines without a site stand in one of their own. */
function sitesOf(machines: readonly MovingMachine[], known: readonly MapSite[]): readonly MapSite[] {
  const found = Map.groupBy(machines, (machine) => machine.site);
  const names = [...new Set([...known.map((site) => site.name), ...found.keys()])];
  return names.map((name): MapSite => {
    const nodes = (found.get(name) ?? []).map((machine) => ({
      name: machine.name,
      state: machine.place,
      gate: false,
      router: false,
      reason: machine.queues ? s.moved(machine.moved, machine.queues) : "",
    }));
    const site = known.find((one) => one.name === name);
    return {
      id: name,
      name: name || s.noSite,
      foreign: site?.foreign ?? false,
      nodes,
      state: worst(nodes.map((node) => node.state)),
    };
  });
}
