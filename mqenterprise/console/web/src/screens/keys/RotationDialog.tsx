import { Fragment, type ReactNode } from "react";
import type { Keys } from "../../api/types";
import { Dialog } from "../../parts/Dialog";
import { visible } from "../../parts/text";
import { strings } from "../../strings";
import { KeyTable } from "./KeyTables";

const s = strings.keys;

/** A name of a computer as one word of a shell: whatever stands in it, it stays one. */
function quoted(name: string): string {
  return /^[A-Za-z0-9][A-Za-z0-9._-]*$/.test(name) ? name : `'${visible(name).replaceAll("'", "'\\''")}'`;
}

/** The plan of a rotation, and where it is run: private keys never come to the console. */
export function RotationDialog({
  machine,
  keys,
  onClose,
}: {
  machine: string;
  keys: Keys | undefined;
  onClose: () => void;
}): ReactNode {
  const command = (what: string) => `mqenterprise keys ${what} ${quoted(machine)}`;
  return (
    <Dialog title={s.rotation(visible(machine))} onClose={onClose} wide>
      {keys && <KeyTable keys={keys.keys} />}
      {keys?.keys.some((key) => key.state === "next") && <p>{s.nextIs}</p>}
      <p>{s.plan}</p>
      <ol>
        {s.steps(s.interval).map((step) => (
          <li key={step}>{step}</li>
        ))}
      </ol>
      <p>{s.where}</p>
      <dl className="facts">
        {(
          [
            [s.first, "status"],
            [s.begin, "rotate"],
            [s.end, "retire"],
            [s.back, "rollback"],
          ] as const
        ).map(([title, what]) => (
          <Fragment key={what}>
            <dt>{title}</dt>
            <dd className="mono">{command(what)}</dd>
          </Fragment>
        ))}
      </dl>
    </Dialog>
  );
}
