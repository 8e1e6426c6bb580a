import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { calls } from "../api/calls";
import { useMay } from "../api/session";
import type { MachinePlan, PlanStep } from "../api/types";
import { count } from "../parts/format";
import { Failure, Notice, Waiting } from "../parts/Notices";
import { Age } from "../parts/Stale";
import { Foreign } from "../parts/Texts";
import { Page } from "../shell/Page";
import { strings } from "../strings";
import { paced, timed } from "./enterprise";

const s = strings.plan;
/** The number that stands for no limit. */
const NO_QUOTA = 0xffffffff;
const SIGNS = { create: "+", update: "~", delete: "−" } as const;

/** The declaration against the directory, as a diff. Nothing is applied here. */
export function PlanScreen(): ReactNode {
  const plan = useQuery({
    queryKey: ["plan"],
    queryFn: ({ signal }) => timed(calls.plan(signal)),
    refetchInterval: paced,
  });
  const steps = plan.data?.steps ?? [];
  const number = (action: PlanStep["action"]) => count(steps.filter((step) => step.action === action).length);
  return (
    <Page
      title={s.title}
      about={s.about}
      actions={
        <Button variant="default" loading={plan.isLoading} onClick={() => void plan.refetch()}>
          {s.compare}
        </Button>
      }
    >
      {!plan.data && !plan.error && <Waiting />}
      {plan.error && <Failure error={plan.error} />}
      <Age updated={plan.dataUpdatedAt} failed={Boolean(plan.error)} />
      {plan.data && (
        <section className="panel stack" aria-label={s.result}>
          {steps.length === 0 ? (
            <Notice tone="good">
              <p role="status">{s.nothing}</p>
            </Notice>
          ) : (
            <p role="status">
              <strong>{s.summary(number("create"), number("update"), number("delete"))}</strong>
            </p>
          )}
          <ul className="diff">
            {steps.map((step) => (
              <Step key={`${step.kind}/${step.name.join("/")}/${step.action}`} step={step} />
            ))}
          </ul>
          {plan.data.remarks.length > 0 && (
            <>
              <h2>{s.leftAlone}</h2>
              <ul>
                {plan.data.remarks.map((remark) => (
                  <li key={`${remark.note}/${remark.name}`}>
                    <Foreign text={remark.name} most={200} />:{" "}
                    {(s.notes as Record<string, string>)[remark.note] ?? <Foreign text={remark.note} />}
                  </li>
                ))}
              </ul>
            </>
          )}
          <p className="dim">{s.apply}</p>
        </section>
      )}
      <AtNodes />
    </Page>
  );
}

/** The documents of machines against their nodes. Each comparison is in the nodes' audit logs, so a person begins it. */
function AtNodes(): ReactNode {
  const permitted = useMay("administer");
  const found = useQuery({
    queryKey: ["plan", "nodes"],
    queryFn: ({ signal }) => calls.planAtNodes(signal),
    enabled: false,
  });
  const machines = found.data?.machines ?? [];
  const steps = machines.flatMap((one) => (one.steps ?? []).map((step) => ({ machine: one.machine, step })));
  const silent = machines.filter((one) => one.error);
  return (
    <section className="panel stack" aria-label={s.atNodes}>
      <h2>{s.atNodes}</h2>
      <p className="dim">{permitted ? s.aboutNodes : s.forAdministrators}</p>
      {permitted && (
        <div>
          <Button variant="default" loading={found.isFetching} onClick={() => void found.refetch()}>
            {s.compareNodes}
          </Button>
        </div>
      )}
      {found.error && <Failure error={found.error} />}
      {found.data && <Age updated={found.dataUpdatedAt} failed={Boolean(found.error)} />}
      {found.data && steps.length === 0 && <p role="status">{s.nodesDone}</p>}
      <ul className="diff">
        {steps.map(({ machine, step }) => (
          <NodeStep key={`${machine}/${step.queue}/${step.bridge}`} machine={machine} step={step} />
        ))}
      </ul>
      {silent.length > 0 && (
        <ul>
          {silent.map((one) => (
            <li key={one.machine}>
              <Foreign text={one.machine} />: {s.unknown}: <Foreign text={one.error ?? ""} most={300} />
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function Step({ step }: { step: PlanStep }): ReactNode {
  const names = Object.keys({ ...step.before, ...step.after }).filter(
    // Of what is made anew, only what it has.
    (name) => step.action === "update" || !(isEmpty(step.after[name]) || step.after[name] === false),
  );
  return (
    <li className={step.action === "update" ? "change" : step.action}>
      <strong>
        <span aria-hidden="true">{SIGNS[step.action]}</span> {s.actions[step.action]}{" "}
        <Foreign text={step.kind.replaceAll("_", " ")} /> <Foreign text={step.name.join(" · ")} />
      </strong>
      {step.action !== "delete" && (
        <dl>
          {names.map((name) => (
            <div key={name}>
              <dt>
                <Foreign text={(s.fields as Record<string, string>)[name] ?? name.replaceAll("_", " ")} />
              </dt>
              <dd>
                {step.action === "update" && (
                  <>
                    <span className="old">
                      <Foreign text={shown(name, step.before[name])} most={400} />
                    </span>
                    {" → "}
                  </>
                )}
                <span className="new">
                  <Foreign text={shown(name, step.after[name])} most={400} />
                </span>
              </dd>
            </div>
          ))}
        </dl>
      )}
    </li>
  );
}

function NodeStep({ machine, step }: { machine: string; step: NonNullable<MachinePlan["steps"]>[number] }): ReactNode {
  const what = step.queue ? s.queue : step.bridge ? s.bridge : s.addresses;
  return (
    <li className={step.action}>
      <strong>
        {s.nodeActions[step.action]} {what} <Foreign text={step.queue || step.bridge} /> · <Foreign text={machine} />
      </strong>
      <dl>
        {Object.entries(step.changes).map(([name, change]) => (
          <div key={name}>
            <dt>
              <Foreign text={name.replaceAll("_", " ")} />
            </dt>
            <dd>
              {step.action === "change" && (
                <>
                  <span className="old">
                    <Foreign text={plain(name, change.from)} most={400} />
                  </span>
                  {" → "}
                </>
              )}
              <span className="new">
                <Foreign text={plain(name, change.to)} most={400} />
              </span>
            </dd>
          </div>
        ))}
      </dl>
    </li>
  );
}

/** Access lists and secrets of bridges have parts. */
function plain(name: string, value: unknown): string {
  const isWhole = !Array.isArray(value) || value.every((one) => typeof one === "string");
  return isWhole && (typeof value !== "object" || Array.isArray(value) || value === null)
    ? shown(name, value)
    : JSON.stringify(value);
}

function isEmpty(value: unknown): boolean {
  return value === null || value === undefined || value === "" || (Array.isArray(value) && value.length === 0);
}

function shown(name: string, value: unknown): string {
  if (/(^|_)quota$/.test(name) && typeof value === "number")
    return value === NO_QUOTA ? s.noQuota : `${count(value)} KB`;
  if (isEmpty(value)) return strings.none;
  if (typeof value === "boolean") return value ? strings.yes : strings.no;
  return Array.isArray(value) ? value.join(", ") : String(value);
}
