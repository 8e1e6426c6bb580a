import { Button, Checkbox, NativeSelect, TextInput } from "@mantine/core";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { type ReactNode, useEffect, useMemo, useState } from "react";
import { calls } from "../api/calls";
import { useMay } from "../api/session";
import type { Found } from "../api/types";
import { Conditions } from "../parts/Conditions";
import { classWord, count } from "../parts/format";
import { Failure } from "../parts/Notices";
import { Nothing, StaleNotice } from "../parts/Stale";
import { type Column, Table } from "../parts/Table";
import { Foreign } from "../parts/Texts";
import { visible } from "../parts/text";
import { go, useSearch } from "../router";
import { Page } from "../shell/Page";
import { strings } from "../strings";
import { useOverview } from "./enterprise";
import { MESSAGE_COLUMNS } from "./queue/MessagesTab";
import { shortName } from "./queue/names";

const s = strings.search;
const PAGE = 100;
const NO_CONDITION: readonly string[] = [];

const COLUMNS: readonly Column<Found>[] = [
  ...MESSAGE_COLUMNS.slice(0, 1),
  {
    id: "queue",
    title: strings.queues.name,
    least: 120,
    grow: 2,
    rank: 8,
    cell: (one) => <Foreign text={shortName({ machine: one.machine, pathname: one.queue })} most={100} />,
  },
  {
    id: "machine",
    title: strings.queues.machine,
    least: 110,
    grow: 1,
    rank: 4,
    cell: (one) => <Foreign text={one.machine} most={60} />,
  },
];

/** Conditions of bodies, whose text is shown around what was looked for. */
const OF_BODIES = /^(body|value)\b/i;
const AROUND = 40;

function columnsFor(where: readonly string[], maySeeBodies: boolean): readonly Column<Found>[] {
  const ofBodies = where.filter((one) => OF_BODIES.test(one));
  const others = where.filter((one) => !OF_BODIES.test(one));
  const why: Column<Found> = {
    id: "why",
    title: s.why,
    least: 190,
    grow: 4,
    rank: 7,
    cell: (one) => (
      <>
        {ofBodies.length > 0 && (maySeeBodies ? <Excerpt one={one} where={ofBodies} /> : ofBodies.join(", "))}
        {ofBodies.length > 0 && others.length > 0 && " · "}
        {others.length > 0 && <Foreign text={others.map((each) => reason(each, one)).join(" · ")} most={160} />}
      </>
    ),
  };
  return [...COLUMNS, ...(where.length ? [why] : []), ...MESSAGE_COLUMNS.slice(1, 5)];
}

/** A condition with the value that the message has. */
function reason(condition: string, { message }: Found): string {
  const name = /^[a-z_.]+/i.exec(condition)?.[0].toLowerCase();
  const values: Record<string, string | number | null> = {
    label: message.label,
    class: classWord(message.message_class),
    correlation: message.correlation_identifier,
    sender: message.sender ?? message.claimed_sender,
  };
  const value = name === undefined ? undefined : values[name];
  return value ? `${name}: ${value}` : condition;
}

/** The part of a body that a condition found. */
function Excerpt({ one, where }: { one: Found; where: readonly string[] }): ReactNode {
  const { machine, queue, message } = one;
  const body = useQuery({
    queryKey: ["message", machine, queue, message.lookup_identifier, true],
    queryFn: ({ signal }) => calls.message(machine, queue, message.lookup_identifier, true, signal),
    staleTime: 60_000,
  });
  if (!body.data) return <span className="dim">{where.join(", ")}</span>;
  const { decoded, text } = body.data;
  const whole = typeof decoded === "string" || !decoded ? (text ?? "") : text?.length ? text : JSON.stringify(decoded);
  const words = where.map((each) => each.replace(/^[^=<>~]*[=<>~]+/, "").replace(/^\*+|\*+$/g, ""));
  const at = Math.max(0, ...words.map((word) => (word ? whole.toLowerCase().indexOf(word.toLowerCase()) : -1)));
  const found = words.find((word) => whole.slice(at, at + word.length).toLowerCase() === word.toLowerCase()) ?? "";
  return (
    <>
      {at > AROUND && "…"}
      <Foreign text={whole.slice(Math.max(0, at - AROUND), at)} />
      <mark>
        <Foreign text={whole.slice(at, at + found.length)} />
      </mark>
      <Foreign text={whole.slice(at + found.length, at + found.length + AROUND)} />
    </>
  );
}

/** Patterns of queues, with their journals and the dead-letter queues unless a person left them out. */
function patterns(queue: string, without: readonly string[]): string[] {
  if (queue.includes(";")) return [queue];
  return [
    queue,
    // A pattern even for one queue: a name alone is an error at nodes that lack it.
    ...(without.includes("journals") ? [] : [`${queue};journa?`]),
    ...(without.includes("dead") ? [] : ["system$;dead*"]),
  ];
}

/** Messages in all queues of all nodes. */
export function SearchScreen(): ReactNode {
  const [search, setSearch] = useSearch("/search");
  const overview = useOverview();
  const machines = overview.data?.nodes.map((node) => node.machine) ?? [];
  const [queue, setQueue] = useState(search.queue ?? "*");
  const [machine, setMachine] = useState(search.machine ?? "");
  const [without, setWithout] = useState<readonly string[]>(search.without?.split(" ") ?? []);
  const asked = search.queue !== undefined;
  const where = search.where ?? NO_CONDITION;
  useEffect(() => {
    setQueue(search.queue ?? "*");
    setMachine(search.machine ?? "");
    setWithout(search.without?.split(" ") ?? []);
  }, [search.queue, search.machine, search.without]);
  const found = useInfiniteQuery({
    queryKey: ["search", search],
    queryFn: ({ pageParam, signal }) =>
      calls.messages(
        {
          machine: search.machine ? [search.machine] : [],
          queue: patterns(search.queue ?? "*", search.without?.split(" ") ?? []),
          where,
          cursor: pageParam,
          limit: PAGE,
        },
        signal,
      ),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
    enabled: asked,
  });
  const rows = found.data?.pages.flatMap((page) => page.found) ?? [];
  const refused = new Set(found.data?.pages.flatMap((page) => page.refused));
  const maySeeBodies = useMay("bodies");
  const columns = useMemo(() => columnsFor(where, maySeeBodies), [where, maySeeBodies]);
  const begin = (wanted: readonly string[]) => {
    setSearch(
      () => ({
        queue: queue.trim() || "*",
        machine: machine || undefined,
        without: without.join(" ") || undefined,
        ...(wanted.length && { where: wanted }),
      }),
      false,
    );
    if (asked) void found.refetch();
  };
  const tick = (name: string) => (
    <Checkbox
      className="beside"
      label={s.ticks[name as keyof typeof s.ticks]}
      checked={!without.includes(name)}
      onChange={(event) => {
        const isOn = event.currentTarget.checked;
        setWithout((old) => (isOn ? old.filter((one) => one !== name) : [...old, name]));
      }}
    />
  );
  return (
    <Page title={s.title} about={s.about}>
      <Conditions where={where} onFind={begin}>
        <TextInput
          className="stretch"
          label={s.queue}
          description={s.queueHelp}
          value={queue}
          onChange={(event) => setQueue(event.currentTarget.value)}
          spellCheck={false}
        />
        {tick("journals")}
        {tick("dead")}
        {machines.length > 1 && (
          <NativeSelect
            label={strings.queues.machine}
            value={machine}
            onChange={(event) => setMachine(event.currentTarget.value)}
            data={[
              { value: "", label: strings.queues.all },
              ...machines.map((one) => ({ value: one, label: visible(one) })),
            ]}
          />
        )}
      </Conditions>
      {found.error && <Failure error={found.error} retry={() => void found.refetch()} />}
      <StaleNotice stale={found.data?.pages.at(-1)?.stale} />
      {refused.size > 0 && <p className="dim">{s.refused(refused.size)}</p>}
      {asked && !found.error && (
        <>
          <p role="status">
            {found.isFetching ? strings.loading : s.found(count(rows.length), Boolean(found.hasNextPage))}
          </p>
          <div className="panel flush grows table-panel">
            <Table
              label={s.title}
              columns={columns}
              total={rows.length}
              row={(index) => rows[index]}
              keyOf={(one) => `${one.machine}/${one.queue}/${one.message.lookup_identifier}`}
              onOpen={(one) =>
                go({
                  to: "/queues/$machine/$queue/$lookup",
                  params: { machine: one.machine, queue: one.queue, lookup: one.message.lookup_identifier },
                })
              }
              onSeen={(_, last) => {
                if (last >= rows.length - 10 && found.hasNextPage && !found.isFetching) void found.fetchNextPage();
              }}
              empty={
                found.isFetching ? (
                  strings.loading
                ) : (
                  <Nothing text={strings.messages.noMatch} stale={found.data?.pages.at(-1)?.stale} />
                )
              }
              height={38}
            />
          </div>
          {found.hasNextPage && (
            <div>
              <Button variant="default" loading={found.isFetchingNextPage} onClick={() => void found.fetchNextPage()}>
                {s.more}
              </Button>
            </div>
          )}
        </>
      )}
    </Page>
  );
}
