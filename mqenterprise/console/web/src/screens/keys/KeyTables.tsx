import type { ReactNode } from "react";
import type { CertificateFacts, KeyFacts, KeyState } from "../../api/types";
import { span } from "../../parts/format";
import { StateMark } from "../../parts/Notices";
import { useNow } from "../../parts/preferences";
import { Foreign, Moment, None } from "../../parts/Texts";
import { strings } from "../../strings";

const s = strings.keys;
/** A key that the node still has. */
type HeldState = Exclude<KeyState, "retired" | "destroyed">;
const TONE: Record<HeldState, string> = { next: "running", current: "up", previous: "paused" };
/** Days before its end from which a certificate stands out. */
const SOON = 30;

function shortened(fingerprint: string): string {
  return fingerprint.replace(/^SHA256:/, "").slice(0, 16);
}

/** A key by the beginning of its fingerprint. */
export function KeyName({ fingerprint }: { fingerprint: string }): ReactNode {
  return (
    <span className="dim mono nowrap" title={fingerprint}>
      <Foreign text={shortened(fingerprint)} />
    </span>
  );
}

/** The keys in use come first. */
function byUse(keys: readonly KeyFacts[]): KeyFacts[] {
  const order: readonly KeyFacts["state"][] = ["current", "next", "previous"];
  return [...keys].sort((one, other) => order.indexOf(one.state) - order.indexOf(other.state));
}

export function KeyTable({ keys }: { keys: readonly KeyFacts[] }): ReactNode {
  const now = useNow();
  return (
    <table className="plain keys">
      <thead>
        <tr>
          <th scope="col">{s.key}</th>
          <th scope="col">{s.state}</th>
          <th scope="col">{s.age}</th>
          <th scope="col">{s.since}</th>
        </tr>
      </thead>
      <tbody>
        {byUse(keys).map((key) => (
          <tr key={key.fingerprint}>
            <td>
              {s.purposes[key.purpose] ?? <Foreign text={key.purpose} most={40} />}, {s.bits(key.length)}
              <div className="dim mono nowrap" title={key.fingerprint}>
                <Foreign text={shortened(key.fingerprint)} />
              </div>
              <div className="dim provider">
                <Foreign text={key.provider} most={80} />
              </div>
            </td>
            <td title={s.meanings[key.state as HeldState]}>
              <StateMark
                state={TONE[key.state as HeldState] ?? "unknown"}
                word={s.states[key.state as HeldState] ?? key.state}
              />
            </td>
            <td className="nowrap">
              {key.created ? <span>{span((now - Date.parse(key.created)) / 1000)}</span> : <None />}
            </td>
            <td>
              {key.published ? <Moment at={key.published} /> : <span className="dim">{s.unpublished}</span>}
              {key.superseded && (
                <div className="dim">
                  {s.until} <Moment at={key.superseded} />
                  {key.state === "previous" && `; ${s.decrypts}`}
                </div>
              )}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function CertificateTable({ certificates }: { certificates: readonly CertificateFacts[] }): ReactNode {
  return (
    <table className="plain">
      <thead>
        <tr>
          <th scope="col">{s.certificate}</th>
          <th scope="col">{s.ends}</th>
        </tr>
      </thead>
      <tbody>
        {certificates.map((one) => (
          <tr key={one.use}>
            <td>
              {s.uses[one.use] ?? <Foreign text={one.use} most={40} />}
              {one.subject !== null && (
                <div className="dim">
                  <Foreign text={one.subject} most={80} />
                </div>
              )}
            </td>
            <td>{one.fault !== null ? <Foreign text={one.fault} most={200} /> : <End at={one.ends} />}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function End({ at }: { at: string | null }): ReactNode {
  const now = useNow();
  if (at === null) return <None />;
  const left = (Date.parse(at) - now) / 1000;
  return (
    <>
      <Moment at={at} />{" "}
      {left <= 0 ? (
        <StateMark state="down" word={s.ended} />
      ) : (
        <StateMark state={left < SOON * 86_400 ? "due" : "ok"} word={s.left(span(left))} />
      )}
    </>
  );
}
