import { Button, NativeSelect, TextInput } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, type ReactNode, useState } from "react";
import { calls } from "../api/calls";
import type { Found } from "../api/types";
import { count } from "../parts/format";
import { Failure } from "../parts/Notices";
import { Nothing, StaleNotice } from "../parts/Stale";
import { type Column, Table } from "../parts/Table";
import { Foreign } from "../parts/Texts";
import { condition, visible } from "../parts/text";
import { Page } from "../shell/Page";
import { strings } from "../strings";
import { useOverview } from "./enterprise";
import { MESSAGE_COLUMNS } from "./queue/MessagesTab";
import { shortName } from "./queue/names";

const s = strings.search;
const PAGE = 100;

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
  ...MESSAGE_COLUMNS.slice(1, 5),
];

/** Messages in all queues of all nodes. */
export function SearchScreen(): ReactNode {
  const search = useSearch({ from: "/search" });
  const navigate = useNavigate({ from: "/search" });
  const overview = useOverview();
  const machines = overview.data?.nodes.map((node) => node.machine) ?? [];
  const [queue, setQueue] = useState(search.queue ?? "*");
  const [where, setWhere] = useState(search.where ?? "");
  const [machine, setMachine] = useState(search.machine ?? "");
  const asked = search.queue !== undefined;
  const found = useInfiniteQuery({
    queryKey: ["search", search],
    queryFn: ({ pageParam, signal }) =>
      calls.messages(
        {
          machine: search.machine ? [search.machine] : [],
          queue: [search.queue ?? "*"],
          where: (search.where ?? "").split("\n").filter(Boolean),
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
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const wanted = condition(where);
    setWhere(wanted);
    void navigate({
      search: { queue: queue.trim() || "*", where: wanted || undefined, machine: machine || undefined },
    });
    if (asked) void found.refetch();
  };
  return (
    <Page title={s.title} about={s.about}>
      <form className="row end" onSubmit={submit}>
        <TextInput
          className="stretch"
          label={s.queue}
          description={s.queueHelp}
          value={queue}
          onChange={(event) => setQueue(event.currentTarget.value)}
          spellCheck={false}
        />
        <TextInput
          className="stretch"
          label={strings.messages.where}
          description={strings.messages.whereHelp}
          value={where}
          onChange={(event) => setWhere(event.currentTarget.value)}
          spellCheck={false}
        />
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
        <Button type="submit">{strings.messages.find}</Button>
      </form>
      {found.error && <Failure error={found.error} retry={() => void found.refetch()} />}
      <StaleNotice stale={found.data?.pages.at(-1)?.stale} />
      {refused.size > 0 && <p className="dim">{s.refused(refused.size)}</p>}
      {asked && (
        <>
          <p role="status">
            {found.isFetching ? strings.loading : s.found(count(rows.length), Boolean(found.hasNextPage))}
          </p>
          <div className="panel flush grows table-panel">
            <Table
              label={s.title}
              columns={COLUMNS}
              total={rows.length}
              row={(index) => rows[index]}
              keyOf={(one) => `${one.machine}/${one.queue}/${one.message.lookup_identifier}`}
              onOpen={(one) =>
                void navigate({
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
