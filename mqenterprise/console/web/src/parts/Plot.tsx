import { useElementSize } from "@mantine/hooks";
import { type PointerEvent, type ReactNode, useState } from "react";
import { count, moment } from "./format";
import { useZone } from "./preferences";

export interface Line {
  readonly title: string;
  readonly values: readonly (number | null)[];
  /** The name of a colour of the style sheet. */
  readonly colour: string;
  readonly fill?: boolean;
}

interface PlotProps {
  readonly title: string;
  readonly times: readonly number[];
  readonly lines: readonly Line[];
  readonly format?: (value: number) => string;
}

const HEIGHT = 190;
const LEFT = 64;
const BOTTOM = 30;
const TOP = 8;
/** Pixels between two times below a plot, at least. */
const BETWEEN = 90;
const STEPS = [1, 5, 10, 30, 60, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600, 43200, 86400];

/** The smallest of 1, 2 and 5 by a power of ten that is no less than this. */
function round(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5, 10].find((one) => one * power >= value) ?? 10) * power;
}

/** The multiples of a step from a value to another. */
function multiples(step: number, from: number, to: number): number[] {
  const first = Math.ceil(from / step);
  return Array.from({ length: Math.max(0, Math.floor(to / step) - first + 1) }, (_, index) => (first + index) * step);
}

/** The parts of a line between unknown values, as the path of an SVG. */
function path(values: readonly (number | null)[], x: (at: number) => number, y: (value: number) => number): string {
  return values
    .map((value, at) =>
      value === null
        ? ""
        : `${(values[at - 1] ?? null) === null ? "M" : "L"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`,
    )
    .join("");
}

/** Lines over time. The values at the pointer, or those of the last step, are in words above it. */
export function Plot({ title, times, lines, format = count }: PlotProps): ReactNode {
  const zone = useZone();
  const { ref, width } = useElementSize<HTMLDivElement>();
  const [pointed, setPointed] = useState<number | null>(null);
  const begin = times[0] ?? 0;
  const end = times.at(-1) ?? begin;
  const at = pointed === null ? times.length - 1 : Math.min(pointed, times.length - 1);
  const room = Math.max(width - LEFT, 1);
  const most = Math.max(1, ...lines.flatMap((line) => line.values.map((value) => value ?? 0))) * 1.1;
  const ofTime = (time: number) => LEFT + ((time - begin) / (end - begin || 1)) * (room - 8);
  const x = (index: number) => ofTime(times[index] ?? begin);
  const y = (value: number) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - BOTTOM - TOP);
  const step = STEPS.find((one) => one >= ((end - begin) * BETWEEN) / room) ?? 86_400;
  const shift = zone === "utc" ? 0 : new Date(end * 1000).getTimezoneOffset() * 60;
  const clock = (time: number) => moment(new Date(time * 1000), zone).slice(11, step < 60 ? 19 : 16);
  const follow = (event: PointerEvent<SVGSVGElement>) => {
    const share = (event.clientX - event.currentTarget.getBoundingClientRect().left - LEFT) / (room - 8);
    setPointed(Math.round(Math.min(Math.max(share, 0), 1) * (times.length - 1)));
  };
  return (
    <figure className="plot">
      <figcaption>
        <strong>{title}</strong>
        {lines.map((line) => (
          <span key={line.title} className="plot-key">
            <i className="swatch" style={{ background: `var(${line.colour})` }} aria-hidden="true" />
            {line.title}: {format(line.values[at] ?? 0)}
          </span>
        ))}
        {times.length > 0 && <span className="dim">{moment(new Date((times[at] ?? end) * 1000), zone).slice(11)}</span>}
      </figcaption>
      <div ref={ref} style={{ height: HEIGHT }}>
        {width > 50 && (
          <svg
            width={width}
            height={HEIGHT}
            aria-hidden="true"
            onPointerMove={follow}
            onPointerLeave={() => setPointed(null)}
          >
            {multiples(Math.max(round(most / 5), 1), 0, most).map((value) => (
              <g key={value}>
                <line className="grid" x1={LEFT} x2={width} y1={y(value)} y2={y(value)} />
                <text x={LEFT - 8} y={y(value) + 4} textAnchor="end">
                  {format(value).replace(/\.0(?!\d)/, "")}
                </text>
              </g>
            ))}
            {multiples(step, begin - shift, end - shift).map((time) => (
              <text key={time} x={ofTime(time + shift)} y={HEIGHT - 10} textAnchor="middle">
                {clock(time + shift)}
              </text>
            ))}
            {lines.map((line) => (
              <g key={line.title} style={{ color: `var(${line.colour})` }}>
                {line.fill && line.values.some((one) => one !== null) && (
                  <path
                    className="area"
                    d={`${path(line.values, x, y)}V${y(0)}H${x(line.values.findIndex((one) => one !== null))}Z`}
                  />
                )}
                <path className="line" d={path(line.values, x, y)} />
              </g>
            ))}
            {pointed !== null && <line className="at" x1={x(at)} x2={x(at)} y1={TOP} y2={HEIGHT - BOTTOM} />}
          </svg>
        )}
      </div>
    </figure>
  );
}
