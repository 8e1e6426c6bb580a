import { Button } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { type ReactNode, useRef, useState } from "react";
import { calls } from "../../api/calls";
import { useMay } from "../../api/session";
import type { Found, FoundPage } from "../../api/types";
import { Conditions } from "../../parts/Conditions";
import { classWord, count, size } from "../../parts/format";
import { Failure, Waiting } from "../../parts/Notices";
import { Age, StaleNotice } from "../../parts/Stale";
import { type Column, Table } from "../../parts/Table";
import { Foreign, Moment, None } from "../../parts/Texts";
import { beginning, visible } from "../../parts/text";
import { Link, useSearch } from "../../router";
import { strings } from "../../strings";
import { REFRESH } from "../enterprise";
import { Preview } from "../message/Preview";
import { type Chosen, type Kind, OperationDialog } from "../operation/OperationDialog";
import { isJournal } from "./names";

const s = strings.messages;
const PAGE = 100;
/** Pages whose numbers are shown beside that of the first. */
const MOST_NUMBERS = 6;
/** The pages that somebody went through: from the first one on, or from the last one back. */
interface Way {
  readonly cursors: readonly string[];
  readonly isBack: boolean;
  /** Messages of the last page, when it is where the way began. */
  readonly last: number;
}
const START: Way = { cursors: [""], isBack: false, last: PAGE };
const NO_CONDITION: readonly string[] = [];
const OPERATIONS: readonly Kind[] = ["move", "copy", "return", "delete"];
const OF_JOURNALS: readonly Kind[] = ["replay", "move", "copy", "delete"];

export const MESSAGE_COLUMNS: readonly Column<Found>[] = [
  {
    id: "label",
    title: s.label,
    least: 150,
    grow: 4,
    rank: 9,
    cell: ({ machine, queue, message }) => (
      <Link to="/queues/$machine/$queue/$lookup" params={{ machine, queue, lookup: message.lookup_identifier }}>
        {message.label ? <Foreign text={message.label} most={160} /> : s.noLabel}
      </Link>
    ),
  },
  { id: "arrival", title: s.arrived, least: 206, rank: 8, cell: ({ message }) => <Moment at={message.arrival_time} /> },
  { id: "size", title: s.size, least: 84, rank: 6, numeric: true, cell: ({ message }) => size(message.body_size) },
  { id: "priority", title: s.priority, least: 90, rank: 3, numeric: true, cell: ({ message }) => message.priority },
  {
    id: "class",
    title: s.class,
    least: 150,
    grow: 1,
    rank: 5,
    cell: ({ message }) =>
      message.unreadable ? (
        <span className="state bad">{s.unreadable}</span>
      ) : (
        <Foreign text={classWord(message.message_class)} most={60} />
      ),
  },
  {
    id: "delivery",
    title: s.delivery,
    least: 120,
    rank: 2,
    cell: ({ message }) => (message.transactional ? s.transactional : message.recoverable ? s.recoverable : s.express),
  },
  {
    id: "correlation",
    title: s.correlation,
    least: 130,
    grow: 1,
    rank: 1,
    cell: ({ message }) =>
      message.correlation_identifier ? <span className="mono">{message.correlation_identifier}</span> : <None />,
  },
];

/** The messages of a queue, page by page, and what can be done with them. */
export function MessagesTab({ machine, queue }: { machine: string; queue: string }): ReactNode {
  const [{ where = NO_CONDITION, open: opened }, setSearch] = useSearch("/queues/$machine/$queue");
  const mayOperate = useMay("operate");
  const [way, setWay] = useState(START);
  const [selection, setSelection] = useState<ReadonlySet<string>>(new Set());
  // What an operation began with: its dialog goes on saying it when the selection is gone.
  const [operation, setOperation] = useState<{ readonly kind: Kind; readonly chosen: Chosen } | null>(null);
  const isChosen = where.length > 0;
  const operations = isJournal(queue) ? OF_JOURNALS : OPERATIONS;
  const { cursors, isBack } = way;
  const cursor = cursors.at(-1) ?? "";
  const limit = isBack && cursors.length === 1 ? way.last : PAGE;
  const page = useQuery({
    queryKey: ["messages", machine, queue, where, cursor, limit],
    queryFn: ({ signal }) => calls.messages({ machine, queue: [queue], where, cursor, limit }, signal),
    // A page that somebody goes through stays as it is, once messages of it are selected.
    refetchInterval: selection.size ? false : REFRESH,
    placeholderData: keepPreviousData,
  });
  // Of a node that does not answer, what it said last is shown, and said to be old.
  const place = JSON.stringify([machine, queue, where, cursor]);
  const last = useRef<{ place: string; page: FoundPage; at: number } | null>(null);
  const isMissing = Boolean(page.data?.stale.length);
  if (page.data && !isMissing && !page.isPlaceholderData)
    last.current = { place, page: page.data, at: page.dataUpdatedAt };
  const old = isMissing && last.current?.place === place ? last.current : null;
  const answer = (old?.page ?? page.data)?.found ?? [];
  const found = isBack ? [...answer].reverse() : answer;
  const begin = (wanted: readonly string[]) => {
    setWay(START);
    setSelection(new Set());
    setSearch((old) => ({ ...old, where: wanted.length ? wanted : undefined }));
  };
  const lookups = found.map((one) => one.message.lookup_identifier);
  const at = opened === undefined ? -1 : lookups.indexOf(opened);
  const show = (lookup: string | undefined) => setSearch((old) => ({ ...old, open: lookup }));
  const total = page.data?.total ?? 0;
  const pages = Math.max(cursors.length, Math.ceil(total / PAGE));
  const numberOf = (index: number) => (isBack ? Math.max(pages - index, 1) : index + 1);
  const number = numberOf(cursors.length - 1);
  const back = () => setWay({ ...way, cursors: cursors.slice(0, -1) });
  const onward = () => page.data?.next && setWay({ ...way, cursors: [...cursors, page.data.next] });
  const numbers: { readonly number: number; readonly to: Way }[] = cursors
    .map((_, index) => ({ number: numberOf(index), to: { ...way, cursors: cursors.slice(0, index + 1) } }))
    .slice(-MOST_NUMBERS);
  if (isBack) numbers.reverse();
  if (numbers[0]?.number !== 1) numbers.unshift({ number: 1, to: START });
  if (!isChosen && numbers.at(-1)?.number !== pages)
    numbers.push({ number: pages, to: { cursors: [`${machine}:-`], isBack: true, last: total % PAGE || PAGE } });
  const choose = (keys: readonly string[], chosen: boolean) =>
    setSelection((old) => {
      const next = new Set(old);
      for (const key of keys) {
        if (chosen) next.add(key);
        else next.delete(key);
      }
      return next;
    });
  return (
    <div className="stack">
      <Conditions where={where} onFind={begin} />
      {page.error && <Failure error={page.error} retry={() => void page.refetch()} />}
      <StaleNotice stale={page.data?.stale} />
      <Age updated={old?.at ?? page.dataUpdatedAt} failed={old !== null || Boolean(page.error)} />
      {mayOperate && (
        <div className="row bar" role="toolbar" aria-label={s.actions}>
          <span aria-live="polite">
            {selection.size
              ? s.selected(count(selection.size))
              : isChosen
                ? s.matching
                : s.selectSome(isJournal(queue))}
          </span>
          {(selection.size > 0 || isChosen) &&
            operations.map((kind) => (
              <Button
                key={kind}
                size="compact-sm"
                variant="default"
                color={kind === "delete" ? "red" : undefined}
                title={strings.operation.about[kind]}
                onClick={() =>
                  setOperation({
                    kind,
                    chosen: {
                      machine,
                      queues: [queue],
                      ...(selection.size ? { messages: [...selection] } : { where }),
                    },
                  })
                }
              >
                {strings.operation.verb[kind]}…
              </Button>
            ))}
          {selection.size > 0 && (
            <Button size="compact-sm" variant="subtle" onClick={() => setSelection(new Set())}>
              {s.unselect}
            </Button>
          )}
        </div>
      )}
      {page.data ? (
        <div className={opened ? "with-preview" : undefined}>
          <div className="panel flush table-panel short">
            <Table
              label={s.title}
              columns={MESSAGE_COLUMNS}
              total={found.length}
              row={(index) => found[index]}
              keyOf={(one) => one.message.lookup_identifier}
              nameOf={(one) => beginning(visible(one.message.label || one.message.lookup_identifier), 60)}
              empty={isMissing ? s.unknown : isChosen ? s.noMatch : s.empty}
              height={38}
              {...(mayOperate && {
                selection,
                onSelect: (one: Found, chosen: boolean) => choose([one.message.lookup_identifier], chosen),
                onSelectAll: (chosen: boolean) =>
                  choose(
                    found.map((one) => one.message.lookup_identifier),
                    chosen,
                  ),
              })}
              {...(opened && { active: opened })}
              onOpen={(one) => show(one.message.lookup_identifier)}
            />
          </div>
          {opened && (
            <Preview
              machine={machine}
              queue={queue}
              lookup={opened}
              onPrevious={at > 0 ? () => show(lookups[at - 1]) : undefined}
              onNext={at >= 0 && at < lookups.length - 1 ? () => show(lookups[at + 1]) : undefined}
              onClose={() => show(undefined)}
            />
          )}
        </div>
      ) : (
        !page.error && <Waiting />
      )}
      <nav className="pager" aria-label={s.pages}>
        <Button
          variant="default"
          size="compact-sm"
          disabled={number < 2 || page.isPlaceholderData}
          onClick={() => (!isBack ? back() : number > 2 ? onward() : setWay(START))}
        >
          {s.previous}
        </Button>
        {numbers.map((one) => (
          <Button
            key={one.number}
            size="compact-sm"
            variant={one.number === number ? "filled" : "default"}
            aria-label={s.page(one.number)}
            {...(one.number === number && { "aria-current": "page" })}
            onClick={() => setWay(one.to)}
          >
            {one.number}
          </Button>
        ))}
        {!isChosen && <span>{s.ofPages(count(pages))}</span>}
        <Button
          variant="default"
          size="compact-sm"
          disabled={(isBack ? cursors.length < 2 : !page.data?.next) || page.isPlaceholderData}
          onClick={() => (isBack ? back() : onward())}
        >
          {s.next}
        </Button>
        {isChosen && page.data && (
          <span className="dim">{s.scanned(count(page.data.scanned), count(page.data.total))}</span>
        )}
      </nav>
      {operation && (
        <OperationDialog
          kind={operation.kind}
          chosen={operation.chosen}
          onClose={() => setOperation(null)}
          onDone={() => setSelection(new Set())}
        />
      )}
    </div>
  );
}
