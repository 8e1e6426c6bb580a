import { useSyncExternalStore } from "react";
import type { Zone } from "./format";

/** What a viewer chose: kept in the browser, never sent. */
const KEY = "console.zone";
const listeners = new Set<() => void>();

function read(): Zone {
  try {
    return localStorage.getItem(KEY) === "local" ? "local" : "utc";
  } catch {
    return "utc";
  }
}

let zone = read();

export function setZone(value: Zone): void {
  zone = value;
  try {
    localStorage.setItem(KEY, value);
  } catch {
    // A browser without storage: the choice lasts until the page is left.
  }
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useZone(): Zone {
  return useSyncExternalStore(subscribe, () => zone);
}

const clocks = new Set<() => void>();
let now = Date.now();
setInterval(() => {
  now = Date.now();
  for (const clock of clocks) clock();
}, 1000);

function tick(listener: () => void): () => void {
  clocks.add(listener);
  return () => clocks.delete(listener);
}

/** Milliseconds since 1970, renewed every second. */
export function useNow(): number {
  return useSyncExternalStore(tick, () => now);
}
