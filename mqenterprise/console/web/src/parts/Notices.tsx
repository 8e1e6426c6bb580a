import { Button } from "@mantine/core";
import type { ReactNode } from "react";
import { ApiError } from "../api/client";
import { Icon } from "../shell/icons";
import { strings } from "../strings";
import { Foreign } from "./Texts";

export type Tone = "good" | "warn" | "bad" | "plain";

/** A sentence that stands out. What is urgent is announced to screen readers. */
export function Notice({ tone, children, action }: { tone: Tone; children: ReactNode; action?: ReactNode }): ReactNode {
  return (
    <div className={`notice ${tone}`} role={tone === "bad" ? "alert" : undefined}>
      {tone !== "good" && <Icon name="failures" />}
      <div className="notice-body">{children}</div>
      {action}
    </div>
  );
}

/** What failed, why, and what to do next, in the words of the API. */
export function Failure({ error, retry }: { error: unknown; retry?: () => void }): ReactNode {
  const sentence = error instanceof ApiError ? error.detail : String(error);
  const name = error instanceof ApiError ? error.name : "";
  return (
    <Notice
      tone="bad"
      action={
        retry && (
          <Button size="compact-sm" variant="default" onClick={retry}>
            {strings.again}
          </Button>
        )
      }
    >
      <p>
        <Foreign text={sentence} />
      </p>
      {name && <p className="dim mono">{name}</p>}
    </Notice>
  );
}

export function Waiting(): ReactNode {
  return (
    <p className="dim" role="status">
      {strings.loading}
    </p>
  );
}

const TONES: Record<string, Tone | "move"> = {
  up: "good",
  ok: "good",
  done: "good",
  node: "good",
  windows: "warn",
  moving: "move",
  running: "plain",
  trouble: "warn",
  paused: "warn",
  preview: "warn",
  due: "warn",
  down: "bad",
  failed: "bad",
  cancelled: "bad",
};

/** A state as a word with a colour. */
export function StateMark({ state, word }: { state: string; word?: string }): ReactNode {
  return (
    <span className={`state ${TONES[state] ?? "plain"}`}>
      {word ?? <Foreign text={(strings.state as Record<string, string>)[state] ?? state} />}
    </span>
  );
}
