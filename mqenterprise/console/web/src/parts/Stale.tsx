import type { ReactNode } from "react";
import type { Stale } from "../api/types";
import { strings } from "../strings";
import { Notice } from "./Notices";
import { Foreign, Moment } from "./Texts";

/** Which nodes' parts of a screen are old or missing, how old, and why. */
export function StaleNotice({ stale }: { stale: readonly Stale[] | undefined }): ReactNode {
  if (!stale?.length) return null;
  return (
    <Notice tone="warn">
      <p>{strings.stale.title(stale.length)}</p>
      <ul>
        {stale.slice(0, 10).map((one) => (
          <li key={one.machine}>
            <strong>
              <Foreign text={one.machine} />
            </strong>
            : <Foreign text={one.reason} most={300} />{" "}
            {one.as_of ? (
              <span className="dim">
                {strings.stale.asOf} <Moment at={one.as_of} ago />
              </span>
            ) : (
              <span className="dim">{strings.stale.never}</span>
            )}
          </li>
        ))}
      </ul>
      {stale.length > 10 && <p className="dim">{strings.map.more(stale.length - 10)}</p>}
    </Notice>
  );
}

/** How old an answer is, when the console itself cannot be asked any more. */
export function Age({ updated, failed }: { updated: number; failed: boolean }): ReactNode {
  if (!failed || !updated) return null;
  return (
    <Notice tone="warn">
      <p>
        {strings.stale.console} <Moment at={updated / 1000} ago />
      </p>
    </Notice>
  );
}
