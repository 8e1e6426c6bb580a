import { ActionIcon } from "@mantine/core";
import { useMediaQuery } from "@mantine/hooks";
import { type ReactNode, useCallback, useEffect, useMemo, useRef } from "react";
import { count, rate } from "../parts/format";
import { beginning, visible } from "../parts/text";
import { Icon } from "../shell/icons";
import { strings } from "../strings";
import { CARD_WIDTH, type Drawing, layout, type Point } from "./layout";
import { byTrouble, type MapLink, type MapNode, type MapSite, type State } from "./model";
import { usePanZoom } from "./usePanZoom";

const HEAD = 38;
const ROW = 24;
const MOST_ROWS = 6;
const LETTERS = 22;

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
  const tall = useMediaQuery("(max-width: 560px)");
  const shape = JSON.stringify([
    sites.map((site) => [site.id, Math.min(site.nodes.length, MOST_ROWS + 1)]),
    links.map((link) => [link.first, link.second]),
  ]);
  const drawing = useMemo(() => {
    const known = new Map(sites.map((site) => [site.id, site]));
    return layout(
      sites.map((site) => site.id),
      links.map((link) => [link.first, link.second] as const),
      (id) => cardHeight(known.get(id)),
      tall,
    );
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the shape is all that the places depend on
  }, [shape, tall]);
  const { view, fit, zoom, centre, step, handlers } = usePanZoom(frame, drawing.width, drawing.height);
  const chosen = selected === undefined ? undefined : drawing.points.get(selected);
  useEffect(() => {
    if (chosen && !drawing.cards) centre(chosen);
  }, [chosen, drawing.cards, centre]);
  const select = useCallback((id: string) => onSelect?.(id), [onSelect]);
  return (
    <div className="map">
      <svg ref={frame} role="group" aria-label={label} tabIndex={0} {...handlers}>
        <g transform={`translate(${view.x} ${view.y}) scale(${view.scale})`}>
          {way && <Way way={way} points={drawing.points} />}
          {links.map((link) => (
            <LinkLine key={link.id} link={link} drawing={drawing} selected={selected === link.id} onSelect={select} />
          ))}
          {sites.map((site) => {
            const at = drawing.points.get(site.id);
            if (!at) return null;
            const props = { site, at, selected: selected === site.id, onSelect: select };
            return drawing.cards ? (
              <SiteCard key={site.id} {...props} />
            ) : (
              <SiteDot
                key={site.id}
                {...props}
                named={view.scale > 0.55 || site.state !== "up" || selected === site.id}
                scale={view.scale}
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
  selected,
  onSelect,
}: {
  link: MapLink;
  drawing: Drawing;
  selected: boolean;
  onSelect: (id: string) => void;
}): ReactNode {
  const [from, to] = [drawing.points.get(link.first), drawing.points.get(link.second)];
  if (!from || !to) return null;
  // From nothing to thousands of messages a second, in a few widths.
  const width = 2 + Math.min(Math.log10(1 + (link.rate ?? 0)) * 2.2, 8);
  const middle = { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 };
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
        <g transform={`translate(${middle.x} ${middle.y + (drawing.cards ? 22 : 0)})`} className="cross">
          <circle r={9} />
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
  if (state === "unknown") return <path className="sign" d="M-2 -1.5A2 2 0 1 1 0 0.5V1M0 3.5V4" />;
  return <path className="sign" d="M-3 0L-1 2.5L3.5 -2.5" />;
}

function SiteDot({
  site,
  at,
  selected,
  onSelect,
  named,
  scale,
}: SiteProps & { named: boolean; scale: number }): ReactNode {
  const radius = 8 + Math.min(Math.sqrt(site.nodes.length) * 2, 12);
  const name = visible(site.name);
  const letters = Math.min(Math.max(12 / scale, 11), 26);
  return (
    <g
      className={`site dot ${site.state}${selected ? " selected" : ""}${site.foreign ? " foreign-site" : ""}`}
      transform={`translate(${at.x} ${at.y})`}
      onClick={() => onSelect(site.id)}
    >
      <title>
        {site.nodes.length
          ? `${name}: ${strings.state[site.state]}, ${strings.map.nodes(site.nodes.length)}`
          : `${name}: ${strings.map.noNode}`}
      </title>
      {site.state === "down" && <circle className="halo" r={radius + 8} />}
      <circle className="card" r={radius} />
      {site.nodes.length > 0 && (
        <g className={`mark ${site.state}`}>
          <Sign state={site.state} />
        </g>
      )}
      {named && (
        <text className="site-name" textAnchor="middle" y={radius + letters} fontSize={letters}>
          {beginning(name, LETTERS)}
        </text>
      )}
    </g>
  );
}
