/** What the drawing of an enterprise needs, however it was found out. */

/** Where a machine is on the way from Windows to a node. */
export type Place = "windows" | "moving" | "node";
export const PLACES: readonly Place[] = ["windows", "moving", "node"];
export type State = "up" | "trouble" | "down" | "unknown" | Place;

export interface MapNode {
  readonly name: string;
  readonly state: State;
  readonly gate: boolean;
  readonly router: boolean;
  /** Why the state is what it is. */
  readonly reason: string;
}

export interface MapSite {
  readonly id: string;
  readonly name: string;
  readonly foreign: boolean;
  readonly nodes: readonly MapNode[];
  readonly state: State;
}

export interface MapLink {
  readonly id: string;
  readonly first: string;
  readonly second: string;
  readonly cost: number;
  readonly gates: readonly string[];
  readonly state: State;
  readonly reason: string;
  /** Messages that cross it a second, and those that wait to; null if nobody knows. */
  readonly rate: number | null;
  readonly waiting: number | null;
}

const ORDER: readonly State[] = ["up", "node", "windows", "moving", "unknown", "trouble", "down"];

export function worst(states: readonly State[]): State {
  if (states.includes("windows") && states.includes("node")) return "moving";
  return states.reduce<State>((found, state) => (ORDER.indexOf(state) > ORDER.indexOf(found) ? state : found), "up");
}

/** The worst first, then by name. */
export function byTrouble<T extends { readonly state: State; readonly name: string }>(things: readonly T[]): T[] {
  return [...things].sort(
    (one, other) => ORDER.indexOf(other.state) - ORDER.indexOf(one.state) || one.name.localeCompare(other.name),
  );
}
