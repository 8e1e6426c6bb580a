import { type ReactNode, useEffect, useSyncExternalStore } from "react";
import { Notice } from "./Notices";
import { Foreign } from "./Texts";

const SHOWN = 15_000;
let said = "";
const listeners = new Set<() => void>();

/** Say on the next screen what was done, since the dialog that did it is closed. */
export function say(sentence: string): void {
  said = sentence;
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** What was said last, for a while. */
export function Said(): ReactNode {
  const sentence = useSyncExternalStore(subscribe, () => said);
  useEffect(() => {
    if (!sentence) return undefined;
    const timer = setTimeout(() => say(""), SHOWN);
    return () => clearTimeout(timer);
  }, [sentence]);
  return (
    <div role="status">
      {sentence && (
        <Notice tone="good">
          <p>
            <Foreign text={sentence} most={300} />
          </p>
        </Notice>
      )}
    </div>
  );
}
