import { Button, Checkbox, NativeSelect, TextInput } from "@mantine/core";
import { useDebouncedValue, useDisclosure } from "@mantine/hooks";
import { useQueries } from "@tanstack/react-query";
import { type ReactNode, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { calls } from "../api/calls";
import { useMay } from "../api/session";
import type { QueueRow } from "../api/types";
import { count, rate, size } from "../parts/format";
import { Failure } from "../parts/Notices";
import { Age, Nothing, StaleNotice } from "../parts/Stale";
import { type Column, type Sort, Table } from "../parts/Table";
import { Foreign, Moment, None } from "../parts/Texts";
import { visible } from "../parts/text";
import { go, Link, useSearch } from "../router";
import { Page } from "../shell/Page";
import { strings } from "../strings";
import { REFRESH, useOverview } from "./enterprise";
import { type Act, BulkDialog, fit } from "./queue/BulkDialog";
import { NewQueueDialog } from "./queue/NewQueueDialog";
import { listName, shortName } from "./queue/names";

const s = strings.queues;
const PAGE = 200;
const SORT = "pathname";
const KINDS = ["private", "public", "outgoing", "journal", "dead letters", "system"] as const;

/** States in which no message leaves. */
const STOPPED: readonly string[] = Object.keys(s.states);

/** A row of the table; `old` if its node does not answer. */
type Row = QueueRow & { readonly old: boolean };

const keyOf = (row: QueueRow) => `${row.machine}/${row.pathname}`;

const COLUMNS: readonly Column<Row>[] = [
  {
    id: "pathname",
    title: s.name,
    least: 184,
    tight: 130,
    grow: 4,
    rank: 9,
    sorts: true,
    cell: (row) => (
      <Link
        to="/queues/$machine/$queue"
        params={{ machine: row.machine, queue: row.pathname }}
        title={visible(row.pathname)}
      >
        {row.state && STOPPED.includes(row.state) && (
          <span className="state warn">{(s.states as Record<string, string>)[row.state]}</span>
        )}{" "}
        <Foreign text={listName(row)} most={160} />
      </Link>
    ),
  },
  {
    id: "machine",
    title: s.machine,
    least: 116,
    grow: 1.5,
    rank: 7,
    sorts: true,
    cell: (row) => (
      <>
        {row.old && (
          <span className="state warn" title={strings.stale.rowHelp}>
            {strings.stale.row}
          </span>
        )}{" "}
        <Foreign text={row.machine} most={60} />
      </>
    ),
  },
  { id: "site", title: s.site, least: 98, grow: 1, rank: 2, cell: (row) => <Foreign text={row.site} most={60} /> },
  {
    id: "label",
    title: s.label,
    least: 90,
    grow: 1.5,
    rank: 1,
    cell: (row) => (row.label ? <Foreign text={row.label} most={120} /> : <None />),
  },
  { id: "kind", title: s.kind, least: 176, grow: 1, rank: 3, cell: (row) => kindOf(row) },
  {
    id: "message_count",
    title: s.messages,
    least: 122,
    rank: 8,
    numeric: true,
    sorts: true,
    cell: (row) => count(row.message_count),
  },
  {
    id: "total_bytes",
    title: s.bytes,
    least: 86,
    rank: 4,
    numeric: true,
    sorts: true,
    cell: (row) => size(row.total_bytes),
  },
  {
    id: "age",
    title: s.age,
    least: 140,
    rank: 7,
    numeric: true,
    sorts: true,
    cell: (row) => (row.oldest_arrival ? <Moment at={row.oldest_arrival} ago /> : <None />),
  },
  {
    id: "arrived_rate",
    title: s.arrived,
    least: 80,
    rank: 6,
    numeric: true,
    sorts: true,
    cell: (row) => (row.arrived_rate === null ? <None /> : rate(row.arrived_rate)),
  },
  {
    id: "left_rate",
    title: s.left,
    least: 88,
    rank: 5,
    numeric: true,
    sorts: true,
    cell: (row) => (row.left_rate === null ? <None /> : rate(row.left_rate)),
  },
];

function nameOf(column: string): string {
  return COLUMNS.find((one) => one.id === column)?.title ?? column;
}

function kindOf(row: QueueRow): ReactNode {
  const word = (s.kinds as Record<string, string>)[row.queue_type] ?? row.queue_type;
  return (
    <>
      <Foreign text={word} />
      {row.transactional && `, ${s.transactional}`}
      {row.state && (
        <>
          {", "}
          <Foreign text={row.state} most={40} />
        </>
      )}
    </>
  );
}

export function QueuesScreen(): ReactNode {
  const [search, setSearch] = useSearch("/queues");
  const mayOperate = useMay("operate");
  const [selection, setSelection] = useState<ReadonlyMap<string, QueueRow>>(new Map());
  const [act, setAct] = useState<{ readonly act: Act; readonly rows: readonly QueueRow[] } | null>(null);
  const chosen = [...selection.values()];
  const [creating, { open, close }] = useDisclosure(false);
  const [name, setName] = useState(search.name ?? "");
  const [wanted] = useDebouncedValue(name, 200);
  const change = useCallback(
    (values: Record<string, string | undefined>) => setSearch((old) => ({ ...old, ...values })),
    [setSearch],
  );
  useEffect(() => change({ name: wanted || undefined }), [wanted, change]);
  // An address that is sent to a colleague says the order, too.
  useEffect(() => {
    if (search.sort === undefined) change({ sort: SORT });
  }, [search.sort, change]);

  const sort = useMemo((): Sort => {
    const text = search.sort ?? SORT;
    return { by: text.replace(/^-/, ""), descending: text.startsWith("-") };
  }, [search.sort]);
  const query = useMemo(
    () => ({
      search: search.name,
      type: search.kind,
      site: search.site,
      machine: search.machine,
      filled: search.only === "filled" ? true : undefined,
      sort: sort.by,
      descending: sort.descending || undefined,
    }),
    [search, sort],
  );
  const [range, setRange] = useState<readonly [number, number]>([0, 0]);
  const pages = useMemo(() => {
    const found: number[] = [];
    for (let page = range[0]; page <= range[1]; page += 1) found.push(page);
    return found;
  }, [range]);
  const results = useQueries({
    queries: pages.map((page) => ({
      queryKey: ["queues", query, page],
      queryFn: ({ signal }: { signal: AbortSignal }) =>
        calls.queues({ ...query, offset: page * PAGE, limit: PAGE }, signal),
      refetchInterval: REFRESH,
    })),
  });
  const first = results[0];
  // While a page of another place or choice is on the way, the length stays as it was.
  const lastTotal = useRef(0);
  if (first?.data) lastTotal.current = first.data.total;
  const total = lastTotal.current;
  const row = (index: number): Row | undefined => {
    const page = results[Math.floor(index / PAGE) - range[0]]?.data;
    const found = page?.queues[index % PAGE];
    return found && { ...found, old: page.stale.some((one) => one.machine === found.machine) };
  };
  const seen = useCallback((from: number, to: number) => {
    const next = [Math.floor(from / PAGE), Math.floor(to / PAGE)] as const;
    setRange((old) => (old[0] === next[0] && old[1] === next[1] ? old : next));
  }, []);
  const overview = useOverview();
  const machines = overview.data?.nodes.map((node) => node.machine) ?? [];
  const sites = overview.data?.sites.map((site) => site.name) ?? [];
  const error = results.find((result) => result.error)?.error;
  return (
    <Page
      title={s.title}
      about={first?.data && s.about(count(total), nameOf(sort.by), sort.descending)}
      actions={mayOperate && <Button onClick={open}>{s.create}</Button>}
    >
      <search className="row end">
        <TextInput
          className="stretch"
          label={s.find}
          placeholder={s.findHint}
          value={name}
          onChange={(event) => setName(event.currentTarget.value)}
        />
        <NativeSelect
          label={s.kind}
          value={search.kind ?? ""}
          onChange={(event) => change({ kind: event.currentTarget.value || undefined })}
          data={[{ value: "", label: s.all }, ...KINDS.map((kind) => ({ value: kind, label: s.kinds[kind] }))]}
        />
        {sites.length > 1 && (
          <Choice label={s.site} value={search.site} options={sites} onChange={(site) => change({ site })} />
        )}
        {machines.length > 1 && (
          <Choice
            label={s.machine}
            value={search.machine}
            options={machines}
            onChange={(machine) => change({ machine })}
          />
        )}
        <Checkbox
          className="beside"
          label={s.filled}
          checked={search.only === "filled"}
          onChange={(event) => change({ only: event.currentTarget.checked ? "filled" : undefined })}
        />
      </search>
      {error && <Failure error={error} />}
      <Age updated={first?.dataUpdatedAt ?? 0} failed={Boolean(error)} />
      <StaleNotice stale={first?.data?.stale} />
      {selection.size > 0 && (
        <div className="row bar" role="toolbar" aria-label={strings.bulk.actions}>
          <span aria-live="polite">{strings.bulk.selected(selection.size)}</span>
          {(["pause", "resume", "purge", "remove"] as const).map((one) => {
            const rows = fit(one, chosen);
            return (
              rows.length > 0 && (
                <Button
                  key={one}
                  size="compact-sm"
                  variant="default"
                  color={one === "purge" || one === "remove" ? "red" : undefined}
                  onClick={() => setAct({ act: one, rows })}
                >
                  {strings.bulk.verb[one]}
                </Button>
              )
            );
          })}
          <Button size="compact-sm" variant="subtle" onClick={() => setSelection(new Map())}>
            {strings.messages.unselect}
          </Button>
        </div>
      )}
      <div className="panel flush grows table-panel">
        <Table
          label={s.title}
          columns={COLUMNS}
          total={total}
          row={row}
          keyOf={keyOf}
          nameOf={(one) => `${visible(shortName(one))} ${strings.queue.on} ${visible(one.machine)}`}
          {...(mayOperate && {
            selection: new Set(selection.keys()),
            onSelect: (one: Row, isChosen: boolean) =>
              setSelection((old) => {
                const next = new Map(old);
                if (isChosen) next.set(keyOf(one), one);
                else next.delete(keyOf(one));
                return next;
              }),
          })}
          sort={sort}
          onSort={(next) => change({ sort: `${next.descending ? "-" : ""}${next.by}` })}
          onSeen={seen}
          onOpen={(one) => go({ to: "/queues/$machine/$queue", params: { machine: one.machine, queue: one.pathname } })}
          empty={first?.isLoading ? strings.loading : <Nothing text={s.none} stale={first?.data?.stale} />}
          height={40}
        />
      </div>
      {act && (
        <BulkDialog
          act={act.act}
          rows={act.rows}
          onClose={() => {
            setAct(null);
            setSelection(new Map());
          }}
        />
      )}
      {creating && <NewQueueDialog machines={machines} machine={search.machine} onClose={close} />}
    </Page>
  );
}

function Choice({
  label,
  value,
  options,
  onChange,
}: {
  label: string;
  value: string | undefined;
  options: readonly string[];
  onChange: (value: string | undefined) => void;
}): ReactNode {
  const all = value !== undefined && !options.includes(value) ? [value, ...options] : options;
  return (
    <NativeSelect
      label={label}
      value={value ?? ""}
      onChange={(event) => onChange(event.currentTarget.value || undefined)}
      data={[{ value: "", label: s.all }, ...all.map((one) => ({ value: one, label: visible(one) }))]}
    />
  );
}
