import { Button, NativeSelect, TextInput } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo, useState } from "react";
import { calls } from "../api/calls";
import type { AuditEntry } from "../api/types";
import { Dialog } from "../parts/Dialog";
import { Failure, StateMark } from "../parts/Notices";
import { Age, Nothing, StaleNotice } from "../parts/Stale";
import { type Column, Table } from "../parts/Table";
import { Foreign, Moment, None } from "../parts/Texts";
import { visible } from "../parts/text";
import { useSearch } from "../router";
import { Page } from "../shell/Page";
import { strings } from "../strings";
import { paced, timed, useOverview } from "./enterprise";
import { wordOf } from "./queue/names";

const s = strings.audit;
const MOST = 1000;
const PREVIEWS = [
  { value: "", label: strings.previews.without },
  { value: "all", label: strings.previews.all },
  { value: "previews", label: strings.previews.only },
];

function text(value: unknown): string {
  if (typeof value === "string") return value;
  if (typeof value === "boolean") return value ? strings.yes : strings.no;
  return Array.isArray(value) ? value.map(text).join(", ") : JSON.stringify(value);
}

/** The action, and which one of its kind. */
function actionOf({ action, details }: AuditEntry): string {
  const kind = details.kind ?? details.action;
  return [action.replaceAll("_", " "), typeof kind === "string" && kind].filter(Boolean).join(": ");
}

const facts = (values: Readonly<Record<string, unknown>>) =>
  Object.entries(values)
    .map(([name, value]) => `${name}: ${text(value)}`)
    .join(", ");

const isPreview = (entry: AuditEntry) => entry.details.dry_run === true;

/** What an entry is about. Some actions name it in their details alone. */
function objectOf({ machine, target, details }: AuditEntry): string {
  const short = (name: unknown) => wordOf(machine, text(name));
  const { name, ...rest } = target;
  const queues = Array.isArray(details.queues) ? details.queues.map(short).join(", ") : "";
  const queue = name === undefined ? (typeof details.queue === "string" ? short(details.queue) : queues) : short(name);
  const into = details.target ?? details.move_to;
  const others = facts(rest);
  return [queue, others && `(${others})`, into ? `→ ${short(into)}` : ""].filter(Boolean).join(" ");
}

/** The outcome; that of a preview is no change. */
function Outcome({ entry }: { entry: AuditEntry }): ReactNode {
  return isPreview(entry) && entry.outcome === "done" ? (
    <StateMark state="preview" />
  ) : (
    <span className={`state ${entry.outcome === "done" ? "good" : "bad"}`}>
      <Foreign text={entry.outcome} />
    </span>
  );
}

const columns = (open: (entry: AuditEntry) => void): readonly Column<AuditEntry>[] => [
  { id: "time", title: s.time, least: 206, rank: 7, cell: (entry) => <Moment at={entry.time} /> },
  {
    id: "who",
    title: s.who,
    least: 90,
    tight: 76,
    grow: 1,
    rank: 8,
    cell: (entry) => (entry.who ? <Foreign text={entry.who} most={80} /> : <None />),
  },
  {
    id: "action",
    title: s.action,
    least: 140,
    tight: 100,
    grow: 1,
    rank: 9,
    cell: (entry) => (
      <button type="button" className="link-button in-cell" title={s.open} onClick={() => open(entry)}>
        <Foreign text={actionOf(entry)} most={80} />
      </button>
    ),
  },
  {
    id: "outcome",
    title: s.outcome,
    least: 96,
    rank: 6,
    cell: (entry) => <Outcome entry={entry} />,
  },
  {
    id: "machine",
    title: strings.queues.machine,
    least: 122,
    rank: 3,
    grow: 0.6,
    cell: (entry) => <Foreign text={entry.machine} most={60} />,
  },
  {
    id: "target",
    title: s.target,
    least: 190,
    tight: 130,
    grow: 3,
    rank: 7.5,
    cell: (entry) => <Foreign text={objectOf(entry)} most={160} />,
  },
  {
    id: "details",
    title: s.details,
    least: 150,
    grow: 2,
    rank: 2,
    cell: (entry) => <Foreign text={[facts(entry.details), entry.problem].filter(Boolean).join("; ")} most={200} />,
  },
];

/** The whole of an entry. */
function Record({ entry, onClose }: { entry: AuditEntry; onClose: () => void }): ReactNode {
  const rows: [string, ReactNode][] = [
    [s.time, <Moment key="time" at={entry.time} />],
    [
      s.who,
      <Foreign
        key="who"
        text={[entry.who ?? strings.none, entry.channel, entry.from].filter(Boolean).join(", ")}
        most={300}
      />,
    ],
    [strings.queues.machine, <Foreign key="machine" text={entry.machine} />],
    [s.action, <Foreign key="action" text={actionOf(entry)} />],
    [s.outcome, <Outcome key="outcome" entry={entry} />],
    ...(entry.problem ? [[s.problem, <Foreign key="problem" text={entry.problem} />] as [string, ReactNode]] : []),
    ...Object.entries({ ...entry.target, ...entry.details }).map(([name, value]): [string, ReactNode] => [
      name.replaceAll("_", " "),
      <Foreign key={name} text={text(value) || strings.none} most={4000} />,
    ]),
  ];
  return (
    <Dialog title={s.record} onClose={onClose} wide>
      <dl className="facts">
        {rows.map(([name, value]) => (
          <div key={name} className="fact">
            <dt>
              <Foreign text={name} />
            </dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      {isPreview(entry) && <p className="dim gap-above">{s.aboutPreview}</p>}
      <div className="dialog-actions">
        <Button onClick={onClose} data-autofocus>
          {strings.close}
        </Button>
      </div>
    </Dialog>
  );
}

/** Who changed what, and who tried. */
export function AuditScreen(): ReactNode {
  const [search, setSearch] = useSearch("/audit");
  const [opened, setOpened] = useState<AuditEntry | null>(null);
  const shown = useMemo(() => columns(setOpened), []);
  const overview = useOverview();
  const machines = overview.data?.nodes.map((node) => node.machine) ?? [];
  const audit = useQuery({
    queryKey: ["audit", search.machine],
    queryFn: ({ signal }) => timed(calls.audit({ machine: search.machine, limit: MOST }, signal)),
    refetchInterval: paced,
    placeholderData: keepPreviousData,
  });
  const who = (search.who ?? "").toLowerCase();
  const what = (search.what ?? "").toLowerCase();
  const found = (audit.data?.entries ?? []).filter(
    (entry) =>
      (search.show === "all" || (search.show === "previews") === isPreview(entry)) &&
      (entry.who ?? "").toLowerCase().includes(who) &&
      `${entry.action} ${objectOf(entry)} ${facts(entry.target)} ${facts(entry.details)}`
        .replaceAll("_", " ")
        .toLowerCase()
        .includes(what),
  );
  const change = (values: Partial<typeof search>) => setSearch((old) => ({ ...old, ...values }));
  return (
    <Page title={s.title} about={s.about}>
      <search className="row end">
        <TextInput
          className="stretch"
          label={s.who}
          value={search.who ?? ""}
          onChange={(event) => change({ who: event.currentTarget.value || undefined })}
        />
        <TextInput
          className="stretch"
          label={s.what}
          value={search.what ?? ""}
          onChange={(event) => change({ what: event.currentTarget.value || undefined })}
        />
        <NativeSelect
          label={strings.previews.label}
          value={search.show ?? ""}
          onChange={(event) => change({ show: event.currentTarget.value || undefined })}
          data={PREVIEWS}
        />
        {machines.length > 1 && (
          <NativeSelect
            label={strings.queues.machine}
            value={search.machine ?? ""}
            onChange={(event) => change({ machine: event.currentTarget.value || undefined })}
            data={[
              { value: "", label: strings.queues.all },
              ...machines.map((one) => ({ value: one, label: visible(one) })),
            ]}
          />
        )}
      </search>
      {audit.error && <Failure error={audit.error} retry={() => void audit.refetch()} />}
      <Age updated={audit.dataUpdatedAt} failed={Boolean(audit.error)} />
      <StaleNotice stale={audit.data?.stale} />
      <div className="panel flush grows table-panel">
        <Table
          label={s.title}
          columns={shown}
          total={found.length}
          row={(index) => found[index]}
          keyOf={(entry) =>
            JSON.stringify([entry.machine, entry.time, entry.who, entry.action, entry.target, entry.details])
          }
          onOpen={setOpened}
          empty={audit.data ? <Nothing text={s.none} stale={audit.data.stale} /> : strings.loading}
          height={40}
        />
      </div>
      {opened && <Record entry={opened} onClose={() => setOpened(null)} />}
    </Page>
  );
}
