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
/** Steps that settle a drawing; of a large one fewer, for each of them takes longer. */
const TICKS = 300;
const MOST_MOVES = 18_000;
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
  /** Width by height of the place for the drawing. */
  shape = 1.6,
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
  simulation.tick(Math.max(60, Math.min(TICKS, Math.round(MOST_MOVES / Math.max(places.length, 1)))));
  fill(places, shape, cards);
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

/** Turn and stretch a drawing so that it fills its place; nothing comes nearer to another than a card allows. */
function fill(places: Place[], shape: number, cards: boolean): void {
  const spread = (of: (one: Place) => number) => {
    const values = places.map(of);
    return Math.max(...values, 0) - Math.min(...values, 0) + (cards ? CARD_WIDTH : 40);
  };
  let ratio = spread((one) => one.x ?? 0) / spread((one) => one.y ?? 0);
  if (Math.abs(Math.log(1 / ratio / shape)) < Math.abs(Math.log(ratio / shape))) {
    for (const one of places) [one.x, one.y] = [one.y ?? 0, one.x ?? 0];
    ratio = 1 / ratio;
  }
  const most = cards ? 1.6 : 2.2;
  const by = Math.min(Math.max(Math.sqrt(shape / ratio), 1 / most), most);
  // Cards keep their distance: only what is too narrow for its place is stretched.
  const [across, down] = cards ? [Math.max(by, 0.85), Math.max(1 / by, 0.85)] : [by, 1 / by];
  for (const one of places) [one.x, one.y] = [(one.x ?? 0) * across, (one.y ?? 0) * down];
}

/** Sites that stand so near each other on the screen that they are drawn as one. */
export interface Group {
  readonly id: string;
  readonly sites: readonly string[];
  readonly at: Point;
}

/**
 * Groups of sites nearer than a distance in the drawing's own units: around the sites with most links first.
 *
 * A site that nothing is near stands alone in its group.
 */
export function grouped(drawing: Drawing, degrees: ReadonlyMap<string, number>, near: number): readonly Group[] {
  const free = new Set(drawing.points.keys());
  const cells = Map.groupBy(drawing.points, ([, at]) => `${Math.floor(at.x / near)} ${Math.floor(at.y / near)}`);
  const groups: Group[] = [];
  const order = [...free].sort((one, other) => (degrees.get(other) ?? 0) - (degrees.get(one) ?? 0));
  for (const id of order) {
    const at = drawing.points.get(id);
    if (!free.has(id) || !at) continue;
    const [column, row] = [Math.floor(at.x / near), Math.floor(at.y / near)];
    const sites: string[] = [];
    for (let x = column - 1; x <= column + 1; x += 1)
      for (let y = row - 1; y <= row + 1; y += 1)
        for (const [other, place] of cells.get(`${x} ${y}`) ?? [])
          if (free.has(other) && Math.hypot(place.x - at.x, place.y - at.y) < near) {
            free.delete(other);
            sites.push(other);
          }
    groups.push({ id, sites, at });
  }
  return groups;
}

/** Pixels of a letter and of a line of the names in a drawing, with some room. */
const LETTER = 7;
const LINE = 15;
/** The radius of the cross on a link that is down. */
export const CROSS = 9;

/**
 * The groups whose names have room on the screen, the most important ones first. `radius` is of their symbols, and no
 * name hides one of these or of the crosses.
 */
export function named(
  groups: readonly Group[],
  scale: number,
  importance: (group: Group) => number,
  letters: (group: Group) => number,
  radius: (group: Group) => number,
  crosses: readonly Point[],
): ReadonlySet<string> {
  type Box = readonly [left: number, top: number, right: number, bottom: number];
  const meet = (one: Box, other: Box) =>
    one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3];
  const symbols = groups.map((group): Box => {
    const [x, y, r] = [group.at.x * scale, group.at.y * scale, radius(group)];
    return [x - r, y - r, x + r, y + r];
  });
  const taken = crosses.map(({ x, y }): Box => {
    const [across, down] = [x * scale, y * scale];
    return [across - CROSS, down - CROSS, across + CROSS, down + CROSS];
  });
  const found = new Set<string>();
  for (const group of [...groups].sort((one, other) => importance(other) - importance(one))) {
    const half = (letters(group) * LETTER) / 2;
    const [x, y] = [group.at.x * scale, group.at.y * scale + radius(group) + 2];
    const box: Box = [x - half, y, x + half, y + LINE];
    if (taken.some((other) => meet(box, other)) || symbols.some((other) => meet(box, other))) continue;
    taken.push(box);
    found.add(group.id);
  }
  return found;
}
