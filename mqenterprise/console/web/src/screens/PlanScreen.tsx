import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { calls } from "../api/calls";
import type { PlanStep } from "../api/types";
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
    </Page>
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
