import type { ReactNode } from "react";
import type { Overview, Stale } from "../api/types";
import { strings } from "../strings";
import { Notice } from "./Notices";
import { Foreign, Moment } from "./Texts";

/** Which nodes' parts of a screen are old or missing, how old, and why. */
export function StaleNotice({ stale }: { stale: readonly Stale[] | undefined }): ReactNode {
  if (!stale?.length) return null;
  return (
    <>
      <StaleNodes title={strings.stale.title} stale={stale.filter((one) => !one.refused)} />
      <StaleNodes title={strings.stale.refused} stale={stale.filter((one) => one.refused)} />
    </>
  );
}

function StaleNodes({ title, stale }: { title: (number: number) => string; stale: readonly Stale[] }): ReactNode {
  if (stale.length === 0) return null;
  return (
    <Notice tone="warn">
      <p>{title(stale.length)}</p>
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
              !one.refused && <span className="dim">{strings.stale.missing}</span>
            )}
          </li>
        ))}
      </ul>
      {stale.length > 10 && <p className="dim">{strings.map.more(stale.length - 10)}</p>}
    </Notice>
  );
}

/** That nothing was found, as far as that is known. */
export function Nothing({ text, stale }: { text: string; stale: readonly Stale[] | undefined }): ReactNode {
  return stale?.length ? `${text} ${strings.stale.elsewhere}` : text;
}

/** Why the directory cannot be read, and how old the outline of the enterprise is. */
export function DirectoryNotice({ directory }: { directory: Overview["directory"] | undefined }): ReactNode {
  if (!directory?.reason) return null;
  return (
    <Notice tone="warn">
      <p>
        {strings.map.directory} <Foreign text={directory.reason} most={300} />{" "}
        {directory.as_of && (
          <>
            {strings.stale.asOf} <Moment at={directory.as_of} ago />
          </>
        )}
      </p>
    </Notice>
  );
}

/** How old an answer is, when it cannot be asked for again. */
export function Age({ updated, failed }: { updated: number; failed: boolean }): ReactNode {
  if (!failed || !updated) return null;
  return (
    <Notice tone="warn">
      <p>
        {strings.stale.old} <Moment at={updated / 1000} ago />
      </p>
    </Notice>
  );
}
