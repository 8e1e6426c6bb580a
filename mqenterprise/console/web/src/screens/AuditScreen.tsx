import { NativeSelect, TextInput } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { calls } from "../api/calls";
import type { AuditEntry } from "../api/types";
import { Failure } from "../parts/Notices";
import { Age, Nothing, StaleNotice } from "../parts/Stale";
import { type Column, Table } from "../parts/Table";
import { Foreign, Moment, None } from "../parts/Texts";
import { visible } from "../parts/text";
import { Page } from "../shell/Page";
import { strings } from "../strings";
import { paced, timed, useOverview } from "./enterprise";

const s = strings.audit;
const MOST = 1000;

const text = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));
const facts = (values: Readonly<Record<string, unknown>>) =>
  Object.entries(values)
    .map(([name, value]) => `${name}: ${text(value)}`)
    .join(", ");

const COLUMNS: readonly Column<AuditEntry>[] = [
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
    least: 120,
    tight: 100,
    grow: 1,
    rank: 9,
    cell: (entry) => <Foreign text={entry.action.replaceAll("_", " ")} most={80} />,
  },
  {
    id: "outcome",
    title: s.outcome,
    least: 96,
    rank: 6,
    cell: (entry) => (
      <span className={`state ${entry.outcome === "done" ? "good" : "bad"}`}>
        <Foreign text={entry.outcome} />
      </span>
    ),
  },
  {
    id: "machine",
    title: strings.queues.machine,
    least: 122,
    rank: 4,
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
    cell: (entry) => <Foreign text={facts(entry.target)} most={160} />,
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

/** Who changed what, and who tried. */
export function AuditScreen(): ReactNode {
  const search = useSearch({ from: "/audit" });
  const navigate = useNavigate({ from: "/audit" });
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
      (entry.who ?? "").toLowerCase().includes(who) &&
      `${entry.action} ${facts(entry.target)} ${facts(entry.details)}`
        .replaceAll("_", " ")
        .toLowerCase()
        .includes(what),
  );
  const change = (values: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...values }), replace: true });
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
          columns={COLUMNS}
          total={found.length}
          row={(index) => found[index]}
          keyOf={(entry) =>
            JSON.stringify([entry.machine, entry.time, entry.who, entry.action, entry.target, entry.details])
          }
          empty={audit.data ? <Nothing text={s.none} stale={audit.data.stale} /> : strings.loading}
          height={40}
        />
      </div>
    </Page>
  );
}
