import { SegmentedControl } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo } from "react";
import { calls } from "../../api/calls";
import { rate, size } from "../../parts/format";
import { Failure, Waiting } from "../../parts/Notices";
import { Plot } from "../../parts/Plot";
import { Age } from "../../parts/Stale";
import { useSearch } from "../../router";
import { strings } from "../../strings";
import { REFRESH } from "../enterprise";

const s = strings.history;

/** Values from the last step backwards; before the first known one there is nothing. */
function aligned(values: readonly number[], length: number, by = 1): (number | null)[] {
  return [...Array<null>(Math.max(0, length - values.length)).fill(null), ...values.map((value) => value / by)];
}

export function HistoryTab({ machine, queue }: { machine: string; queue: string }): ReactNode {
  const [{ span = "hour" }, setSearch] = useSearch("/queues/$machine/$queue");
  const history = useQuery({
    queryKey: ["history", machine, queue, span],
    queryFn: ({ signal }) => calls.history(machine, queue, span, signal),
    refetchInterval: REFRESH,
    placeholderData: keepPreviousData,
  });
  const series = useMemo(() => {
    const found = history.data;
    const one = found?.queues[0];
    if (!found || !one) return null;
    const length = found.times.length;
    return {
      times: found.times.map((time) => Date.parse(time) / 1000),
      rates: [
        { title: s.arrived, colour: "--plot-1", values: aligned(one.arrived, length, found.step) },
        { title: s.left, colour: "--plot-2", values: aligned(one.left, length, found.step) },
        { title: s.died, colour: "--plot-3", values: aligned(one.died, length, found.step) },
      ],
      messages: [{ title: s.messages, colour: "--plot-1", fill: true, values: aligned(one.messages, length) }],
      bytes: [{ title: s.bytes, colour: "--plot-2", fill: true, values: aligned(one.bytes, length) }],
    };
  }, [history.data]);
  return (
    <div className="stack">
      <SegmentedControl
        className="self-start"
        aria-label={s.span}
        value={span}
        onChange={(value) => setSearch((old) => ({ ...old, span: value }))}
        data={[
          { value: "hour", label: s.hour },
          { value: "day", label: s.day },
        ]}
      />
      {history.error && <Failure error={history.error} />}
      <Age updated={history.dataUpdatedAt} failed={Boolean(history.error)} />
      {series ? (
        <div className="columns">
          <section className="panel">
            <Plot title={s.rates} times={series.times} lines={series.rates} format={rate} />
          </section>
          <section className="panel">
            <Plot title={s.backlog} times={series.times} lines={series.messages} />
          </section>
          <section className="panel">
            <Plot title={s.room} times={series.times} lines={series.bytes} format={size} />
          </section>
        </div>
      ) : (
        !history.error && (history.data ? <p className="dim">{s.none}</p> : <Waiting />)
      )}
    </div>
  );
}
