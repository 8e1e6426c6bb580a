import type { ReactNode } from "react";
import type { RotationAction, RotationStep } from "../../api/types";
import { Foreign, Moment } from "../../parts/Texts";
import { strings } from "../../strings";
import { KeyName } from "./KeyTables";

const s = strings.keys;

/** What an action would do to each key, as the node says. */
export function RotationPlan({ action, steps }: { action: RotationAction; steps: readonly RotationStep[] }): ReactNode {
  if (!steps.length) return <p>{s.nothings[action]}</p>;
  return (
    <>
      <p>{s.abouts[action]}</p>
      <ol className="steps">
        {steps.map((step, index) => (
          <li key={index}>
            {sentence(step)} {step.fingerprint !== null && <KeyName fingerprint={step.fingerprint} />}
            {step.senders_until !== null && (
              <div>
                {s.senders} <Moment at={step.senders_until} />.
              </div>
            )}
            {step.needed_until !== null && (
              <div>
                {s.needed} <Moment at={step.needed_until} />. {s.neededThen}
              </div>
            )}
            <div className="dim provider">
              <Foreign text={step.provider} most={80} />
            </div>
          </li>
        ))}
      </ol>
      {action !== "retire" &&
        Object.entries(s.purposes)
          .filter(([purpose]) => !steps.some((step) => step.purpose === purpose))
          .map(([purpose, name]) => <p key={purpose}>{s.untouched(name)}</p>)}
      <p className="dim">{s.stays}</p>
    </>
  );
}

function sentence({ kind, purpose, length, fingerprint }: RotationStep): string {
  const name = s.purposes[purpose] ?? "";
  switch (kind) {
    case "make":
      return s.stepMake(name, s.bits(length));
    case "publish":
      return fingerprint === null ? s.stepPublishNew(name) : s.stepPublish(name);
    case "keep":
      return s.stepKeep(name);
    case "retire":
      return s.stepRetire(name);
    case "destroy":
      return s.stepDestroy(name);
  }
}
