import { ActionIcon } from "@mantine/core";
import { useElementSize } from "@mantine/hooks";
import { type ReactNode, useCallback, useEffect, useMemo, useRef } from "react";
import { count, rate } from "../parts/format";
import { beginning, visible } from "../parts/text";
import { Icon } from "../shell/icons";
import { strings } from "../strings";
import { CARD_WIDTH, CROSS, type Drawing, type Group, grouped, layout, named, type Point } from "./layout";
import { byTrouble, type MapLink, type MapNode, type MapSite, type State, worst } from "./model";
import { usePanZoom } from "./usePanZoom";

const HEAD = 38;
const ROW = 24;
const MOST_ROWS = 6;
const LETTERS = 22;
/** Pixels between two sites that are drawn each for itself. */
const APART = 34;
/** The widths and heights for which places are sought: not for every pixel that a window is made wider. */
const STEP_OF_SHAPE = 1.25;

interface MapProps {
  readonly sites: readonly MapSite[];
  readonly links: readonly MapLink[];
  readonly selected?: string | undefined;
  readonly onSelect?: (id: string) => void;
  /** Sites along a way, drawn above the links. */
  readonly way?: readonly string[];
  readonly label: string;
}

function cardHeight(site: MapSite | undefined): number {
  const rows = site?.nodes.length ?? 0;
  return HEAD + Math.max(1, Math.min(rows, MOST_ROWS) + (rows > MOST_ROWS ? 1 : 0)) * ROW + 8;
}

/** The enterprise as a picture to move and zoom. What it shows is in lists beside it as well. */
export function EnterpriseMap({ sites, links, selected, onSelect, way, label }: MapProps): ReactNode {
  const frame = useRef<SVGSVGElement>(null);
  const { ref: place, width, height } = useElementSize<HTMLDivElement>();
  const shapeOfPlace = width && height ? Math.round(Math.log(width / height) / Math.log(STEP_OF_SHAPE)) : null;
  const shape = JSON.stringify([
    sites.map((site) => [site.id, Math.min(site.nodes.length, MOST_ROWS + 1)]),
    links.map((link) => [link.first, link.second]),
  ]);
  const drawing = useMemo(() => {
    const known = new Map(sites.map((site) => [site.id, site]));
    // Nothing is drawn before its place is known: it would be drawn twice.
    return layout(
      shapeOfPlace === null ? [] : sites.map((site) => site.id),
      links.map((link) => [link.first, link.second] as const),
      (id) => cardHeight(known.get(id)),
      STEP_OF_SHAPE ** (shapeOfPlace ?? 0),
    );
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the shape is all that the places depend on
  }, [shape, shapeOfPlace]);
  const { view, fit, zoom, centre, step, handlers } = usePanZoom(frame, drawing.width, drawing.height);
  const chosen = selected === undefined ? undefined : drawing.points.get(selected);
  useEffect(() => {
    if (chosen && !drawing.cards) centre(chosen);
  }, [chosen, drawing.cards, centre]);
  const select = useCallback((id: string) => onSelect?.(id), [onSelect]);
  const near = drawing.cards ? 0 : APART / view.scale;
  const degrees = useMemo(() => {
    const found = new Map<string, number>();
    for (const link of links) for (const end of [link.first, link.second]) found.set(end, (found.get(end) ?? 0) + 1);
    return found;
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the shape has the links
  }, [shape]);
  const groups = useMemo(() => (near ? grouped(drawing, degrees, near) : []), [drawing, degrees, near]);
  const groupOf = useMemo(() => new Map(groups.flatMap((one) => one.sites.map((site) => [site, one]))), [groups]);
  const known = new Map(sites.map((site) => [site.id, site]));
  const inOrder = (group: Group) => {
    const state = worst(group.sites.map((id) => known.get(id)?.state ?? "up"));
    return (
      (group.sites.includes(selected ?? "") ? 1e6 : 0) +
      (state === "up" ? 0 : 1e4) +
      group.sites.length +
      (degrees.get(group.id) ?? 0)
    );
  };
  const shownLinks = near ? joined(links, groupOf) : links;
  const points = near
    ? new Map([...drawing.points].map(([id, at]) => [id, groupOf.get(id)?.at ?? at] as const))
    : drawing.points;
  const withNames = named(
    groups,
    view.scale,
    inOrder,
    (group) => nameOf(group, known).length,
    (group) => radiusOf(group, known.get(group.id)),
    shownLinks.flatMap((link) => {
      const [from, to] = [points.get(link.first), points.get(link.second)];
      return link.state === "down" && from && to ? [between(from, to)] : [];
    }),
  );
  return (
    <div className="map" ref={place}>
      <svg ref={frame} role="group" aria-label={label} tabIndex={0} {...handlers}>
        <g transform={`translate(${view.x} ${view.y}) scale(${view.scale})`}>
          {way && <Way way={way} points={points} />}
          {shownLinks.map((link) => (
            <LinkLine
              key={link.id}
              link={link}
              drawing={{ ...drawing, points }}
              scale={view.scale}
              selected={selected === link.id}
              onSelect={select}
            />
          ))}
          {drawing.cards &&
            sites.map((site) => {
              const at = drawing.points.get(site.id);
              if (!at) return null;
              return <SiteCard key={site.id} site={site} at={at} selected={selected === site.id} onSelect={select} />;
            })}
          {groups.map((group) => {
            const site = known.get(group.id);
            if (!site) return null;
            if (group.sites.length === 1)
              return (
                <SiteDot
                  key={group.id}
                  site={site}
                  at={group.at}
                  selected={selected === group.id}
                  onSelect={select}
                  named={withNames.has(group.id)}
                  scale={view.scale}
                />
              );
            return (
              <GroupDot
                key={group.id}
                group={group}
                sites={group.sites.flatMap((id) => known.get(id) ?? [])}
                scale={view.scale}
                named={withNames.has(group.id)}
                onOpen={() => centre(group.at, view.scale * 2)}
              />
            );
          })}
        </g>
      </svg>
      <div className="map-tools">
        <ActionIcon variant="default" size="lg" aria-label={strings.map.closer} onClick={() => zoom(step)}>
          <Icon name="plus" />
        </ActionIcon>
        <ActionIcon variant="default" size="lg" aria-label={strings.map.farther} onClick={() => zoom(1 / step)}>
          <Icon name="minus" />
        </ActionIcon>
        <ActionIcon variant="default" size="lg" aria-label={strings.map.whole} onClick={fit}>
          <Icon name="fit" />
        </ActionIcon>
      </div>
    </div>
  );
}

function LinkLine({
  link,
  drawing,
  scale,
  selected,
  onSelect,
}: {
  link: MapLink;
  drawing: Drawing;
  scale: number;
  selected: boolean;
  onSelect: (id: string) => void;
}): ReactNode {
  const [from, to] = [drawing.points.get(link.first), drawing.points.get(link.second)];
  if (!from || !to) return null;
  // From nothing to thousands of messages a second, in a few widths.
  const thick = 2 + Math.min(Math.log10(1 + (link.rate ?? 0)) * 2.2, 8);
  const width = drawing.cards ? thick : (0.5 * thick) / scale;
  const middle = between(from, to);
  const words = [
    strings.map.cost(link.cost),
    ...(link.rate ? [strings.map.perSecond(rate(link.rate))] : []),
    ...(link.waiting ? [strings.map.waiting(count(link.waiting))] : []),
  ].join(" · ");
  return (
    <g className={`link ${link.state}${selected ? " selected" : ""}`} onClick={() => onSelect(link.id)}>
      <title>{visible(link.reason)}</title>
      <line className="touch" x1={from.x} y1={from.y} x2={to.x} y2={to.y} />
      <line className="wire" x1={from.x} y1={from.y} x2={to.x} y2={to.y} strokeWidth={width} />
      {drawing.cards && (
        <g transform={`translate(${middle.x} ${middle.y})`}>
          <rect
            className="plate"
            x={-words.length * 3.4 - 8}
            y={-11}
            width={words.length * 6.8 + 16}
            height={22}
            rx={11}
          />
          <text textAnchor="middle" dy="4">
            {words}
          </text>
        </g>
      )}
      {link.state === "down" && (
        <g
          transform={`translate(${middle.x} ${middle.y + (drawing.cards ? 22 : 0)}) scale(${drawing.cards ? 1 : 1 / scale})`}
          className="cross"
        >
          <circle r={CROSS} />
          <path d="M-4 -4L4 4M4 -4L-4 4" />
        </g>
      )}
    </g>
  );
}

function Way({ way, points }: { way: readonly string[]; points: ReadonlyMap<string, Point> }): ReactNode {
  const found = way.map((id) => points.get(id)).filter((point) => point !== undefined);
  if (found.length < 2) return null;
  return <polyline className="way" points={found.map((point) => `${point.x},${point.y}`).join(" ")} />;
}

interface SiteProps {
  readonly site: MapSite;
  readonly at: Point;
  readonly selected: boolean;
  readonly onSelect: (id: string) => void;
}

function SiteCard({ site, at, selected, onSelect }: SiteProps): ReactNode {
  const height = cardHeight(site);
  const nodes = byTrouble(site.nodes);
  const shown = nodes.slice(0, MOST_ROWS);
  const name = visible(site.name);
  return (
    <g
      className={`site ${site.state}${selected ? " selected" : ""}${site.foreign ? " foreign-site" : ""}`}
      transform={`translate(${at.x - CARD_WIDTH / 2} ${at.y - height / 2})`}
      onClick={() => onSelect(site.id)}
    >
      <title>{name}</title>
      <rect className="card" width={CARD_WIDTH} height={height} rx={10} />
      <text className="site-name" x={14} y={25}>
        {beginning(name, LETTERS - 2)}
      </text>
      {shown.map((node, index) => (
        <g key={node.name} transform={`translate(14 ${HEAD + index * ROW})`}>
          <title>{`${visible(node.name)}: ${strings.state[node.state]}${node.reason ? `. ${visible(node.reason)}` : ""}`}</title>
          <NodeMark node={node} />
          <text className={`node-name ${node.state}`} x={22} y={13}>
            {beginning(visible(node.name), LETTERS - 3)}
          </text>
        </g>
      ))}
      {nodes.length === 0 && (
        <text className="small" x={14} y={HEAD + 13}>
          {strings.map.noNode}
        </text>
      )}
      {nodes.length > MOST_ROWS && (
        <text className="small" x={14} y={HEAD + MOST_ROWS * ROW + 13}>
          {strings.map.more(nodes.length - MOST_ROWS)}
        </text>
      )}
    </g>
  );
}

/** Shape for what a node is, sign and colour for how it is. */
function NodeMark({ node }: { node: MapNode }): ReactNode {
  return (
    <g className={`mark ${node.state}`} transform="translate(8 8)">
      {node.gate ? (
        <path className="shape" d="M0 -9L9 0L0 9L-9 0z" />
      ) : (
        <rect className="shape" x={-7} y={-7} width={14} height={14} rx={node.router ? 2 : 7} />
      )}
      <Sign state={node.state} />
    </g>
  );
}

function Sign({ state }: { state: State }): ReactNode {
  if (state === "down") return <path className="sign" d="M-3 -3L3 3M3 -3L-3 3" />;
  if (state === "trouble") return <path className="sign" d="M0 -4V1M0 3.5V4" />;
  if (state === "windows") return <path className="sign" d="M-4.5 -3L-2.5 3L0 -2L2.5 3L4.5 -3" />;
  if (state === "moving") return <path className="sign" d="M-4 0H4M1 -3L4 0L1 3" />;
  if (state === "unknown") return <path className="sign" d="M-2 -1.5A2 2 0 1 1 0 0.5V1M0 3.5V4" />;
  return <path className="sign" d="M-3 0L-1 2.5L3.5 -2.5" />;
}

const between = (from: Point, to: Point): Point => ({ x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 });

/** What stands below the symbol of a site or of several: the name, and how many of them are down. */
function nameOf(group: Group, known: ReadonlyMap<string, MapSite>): string {
  const name = visible(known.get(group.id)?.name ?? "");
  const down = group.sites.filter((id) => known.get(id)?.state === "down").length;
  return group.sites.length > 1 && down
    ? strings.map.groupDown(beginning(name, 12), down)
    : beginning(name, LETTERS - 6);
}

const ofSite = (site: MapSite | undefined) => 6 + Math.min(Math.sqrt(site?.nodes.length ?? 0) * 1.5, 7);

function radiusOf(group: Group, site: MapSite | undefined): number {
  return group.sites.length > 1 ? 9 + Math.min(Math.sqrt(group.sites.length) * 1.6, 8) : ofSite(site);
}

/** Symbols of a large drawing keep their size on the screen. */
function SiteDot({
  site,
  at,
  selected,
  onSelect,
  named,
  scale,
}: SiteProps & { named: boolean; scale: number }): ReactNode {
  const radius = ofSite(site);
  const name = visible(site.name);
  return (
    <g
      className={`site dot ${site.state}${selected ? " selected" : ""}${site.foreign ? " foreign-site" : ""}`}
      transform={`translate(${at.x} ${at.y}) scale(${1 / scale})`}
      onClick={() => onSelect(site.id)}
    >
      <title>
        {site.nodes.length
          ? `${name}: ${strings.state[site.state]}, ${strings.map.nodes(site.nodes.length)}`
          : `${name}: ${strings.map.noNode}`}
      </title>
      {site.state === "down" && <circle className="halo" r={radius + 6} />}
      <circle className="card" r={radius} />
      {site.nodes.length > 0 && (
        <g className={`mark ${site.state}`}>
          <Sign state={site.state} />
        </g>
      )}
      {named && (
        <text className="site-name" textAnchor="middle" y={radius + 13} fontSize={12}>
          {nameOf({ id: site.id, sites: [site.id], at }, new Map([[site.id, site]]))}
        </text>
      )}
    </g>
  );
}

/** Sites that are too near each other to be drawn: how many, what is down among them. A click comes nearer. */
function GroupDot({
  group,
  sites,
  scale,
  named,
  onOpen,
}: {
  group: Group;
  sites: readonly MapSite[];
  scale: number;
  named: boolean;
  onOpen: () => void;
}): ReactNode {
  const state = worst(sites.map((site) => site.state));
  const down = sites.filter((site) => site.state === "down").length;
  const radius = radiusOf(group, undefined);
  const name = visible(sites.find((site) => site.id === group.id)?.name ?? "");
  return (
    <g
      className={`site dot group ${state}`}
      transform={`translate(${group.at.x} ${group.at.y}) scale(${1 / scale})`}
      onClick={onOpen}
    >
      <title>{strings.map.group(name, sites.length - 1, down)}</title>
      <circle className="card" r={radius} />
      <text className="tally" textAnchor="middle" dy="4" fontSize={11}>
        {sites.length}
      </text>
      {named && (
        <text className="site-name" textAnchor="middle" y={radius + 13} fontSize={12}>
          {nameOf(group, new Map(sites.map((site) => [site.id, site])))}
        </text>
      )}
    </g>
  );
}

/** Links between groups: those of the same two are one, in the worst of their states; those inside are none. */
function joined(links: readonly MapLink[], groupOf: ReadonlyMap<string, Group>): readonly MapLink[] {
  const found = new Map<string, MapLink>();
  for (const link of links) {
    const [first, second] = [groupOf.get(link.first)?.id ?? link.first, groupOf.get(link.second)?.id ?? link.second];
    if (first === second) continue;
    const key = first < second ? `${first}\n${second}` : `${second}\n${first}`;
    const before = found.get(key);
    if (!before) found.set(key, { ...link, first: link.first, second: link.second });
    else
      found.set(key, {
        ...before,
        state: worst([before.state, link.state]),
        rate: (before.rate ?? 0) + (link.rate ?? 0),
        reason: before.reason || link.reason,
      });
  }
  return [...found.values()];
}
