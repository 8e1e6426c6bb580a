import {
  forceCollide,
  forceLink,
  forceManyBody,
  forceSimulation,
  forceX,
  forceY,
  type SimulationNodeDatum,
} from "d3-force";

export interface Point {
  readonly x: number;
  readonly y: number;
}

export interface Drawing {
  readonly points: ReadonlyMap<string, Point>;
  readonly width: number;
  readonly height: number;
  /** Whether each site has room for a card with its nodes. */
  readonly cards: boolean;
}

interface Place extends SimulationNodeDatum {
  id: string;
}

export const MOST_CARDS = 24;
export const CARD_WIDTH = 190;
const TICKS = 300;
const MARGIN = 40;

/**
 * Where the sites of an enterprise stand: linked ones near each other, nothing on top of another.
 *
 * The same sites and links give the same picture, so that nothing moves while numbers change.
 */
export function layout(
  sites: readonly string[],
  links: readonly (readonly [string, string])[],
  heightOf: (site: string) => number,
  upright = false,
): Drawing {
  const cards = sites.length <= MOST_CARDS;
  const gap = cards ? 330 : 90;
  const places: Place[] = sites.map((id) => ({ id }));
  const known = new Set(sites);
  const ends = links
    .filter(([first, second]) => known.has(first) && known.has(second))
    .map(([source, target]) => ({ source, target }));
  const simulation = forceSimulation(places)
    .force(
      "link",
      forceLink<Place, { source: string; target: string }>(ends)
        .id((one) => one.id)
        .distance(gap)
        .strength(cards ? 0.6 : 0.4),
    )
    .force(
      "apart",
      forceManyBody()
        .strength(cards ? -2400 : -260)
        .distanceMax(cards ? 2000 : 900),
    )
    .force(
      "room",
      forceCollide<Place>((one) => (cards ? Math.hypot(CARD_WIDTH, heightOf(one.id)) / 2 + 14 : 26)),
    )
    // Screens are wide: what has no link stays near, and the whole is flatter than high.
    .force("across", forceX(0).strength(0.03))
    .force("down", forceY(0).strength(cards ? 0.12 : 0.06))
    .stop();
  simulation.tick(TICKS);
  // On a narrow screen the same picture lies on its side.
  if (upright) for (const one of places) [one.x, one.y] = [(one.y ?? 0) * 1.6, (one.x ?? 0) * 0.62];
  const half = cards ? CARD_WIDTH / 2 : 20;
  const tall = (one: Place) => (cards ? heightOf(one.id) / 2 : 20);
  const left = Math.min(0, ...places.map((one) => (one.x ?? 0) - half)) - MARGIN;
  const top = Math.min(0, ...places.map((one) => (one.y ?? 0) - tall(one))) - MARGIN;
  const right = Math.max(0, ...places.map((one) => (one.x ?? 0) + half)) + MARGIN;
  const bottom = Math.max(0, ...places.map((one) => (one.y ?? 0) + tall(one))) + MARGIN;
  return {
    points: new Map(places.map((one) => [one.id, { x: (one.x ?? 0) - left, y: (one.y ?? 0) - top }])),
    width: right - left,
    height: bottom - top,
    cards,
  };
}
