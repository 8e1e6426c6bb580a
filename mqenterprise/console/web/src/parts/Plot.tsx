import { useComputedColorScheme } from "@mantine/core";
import { useElementSize } from "@mantine/hooks";
import { type ReactNode, useEffect, useRef } from "react";
import uPlot from "uplot";
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

/** Lines over time. Plots of one page share their cursor. The values of the last step are in words above it. */
export function Plot({ title, times, lines, format = count }: PlotProps): ReactNode {
  const scheme = useComputedColorScheme("light");
  const zone = useZone();
  const { ref, width } = useElementSize<HTMLDivElement>();
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shape = lines.map((line) => `${line.title}/${line.colour}/${line.fill}`).join("|");

  useEffect(() => {
    if (!place.current || width < 50) return;
    const styles = getComputedStyle(place.current);
    const colour = (name: string) => styles.getPropertyValue(name).trim();
    const axis = { stroke: colour("--text-dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    plot.current = new uPlot(
      {
        width,
        height: HEIGHT,
        legend: { show: false },
        cursor: { sync: { key: "history" }, points: { size: 7 }, drag: { x: false, y: false } },
        tzDate: (stamp) => (zone === "utc" ? uPlot.tzDate(new Date(stamp * 1000), "Etc/UTC") : new Date(stamp * 1000)),
        scales: { y: { range: (_, __, most) => [0, Math.max(most * 1.1, 1)] } },
        axes: [
          {
            ...axis,
            size: 30,
            values: [
              [3600, "{HH}:{mm}"],
              [60, "{HH}:{mm}"],
              [1, "{HH}:{mm}:{ss}"],
            ].map((one) => [...one, null, null, null, null, null, null, 1]) as uPlot.Axis.Values,
          },
          { ...axis, size: 64, values: (_, ticks) => ticks.map(format) },
        ],
        series: [
          {},
          ...lines.map((line) => ({
            label: line.title,
            stroke: colour(line.colour),
            width: 2,
            points: { show: false },
            ...(line.fill ? { fill: `${colour(line.colour)}2a` } : {}),
          })),
        ],
      },
      [times as number[], ...lines.map((line) => line.values as number[])],
      place.current,
    );
    return () => plot.current?.destroy();
    // eslint-disable-next-line react-hooks/exhaustive-deps -- data comes by setData; the shape says what the rest depends on
  }, [width, scheme, zone, shape]);

  useEffect(() => {
    plot.current?.setData([times as number[], ...lines.map((line) => line.values as number[])]);
  }, [times, lines]);

  const last = times.at(-1);
  return (
    <figure className="plot" ref={ref}>
      <figcaption>
        <strong>{title}</strong>
        {lines.map((line) => (
          <span key={line.title} className="plot-key">
            <i className="swatch" style={{ background: `var(${line.colour})` }} aria-hidden="true" />
            {line.title}: {format(line.values.at(-1) ?? 0)}
          </span>
        ))}
        {last !== undefined && <span className="dim">{moment(new Date(last * 1000), zone).slice(11)}</span>}
      </figcaption>
      <div ref={place} aria-hidden="true" style={{ height: HEIGHT }} />
    </figure>
  );
}
