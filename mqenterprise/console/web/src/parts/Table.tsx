import { Checkbox } from "@mantine/core";
import { useElementSize, useMergedRef } from "@mantine/hooks";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, type MouseEvent, type ReactNode, useCallback, useEffect, useRef } from "react";
import { strings } from "../strings";

export interface Column<R> {
  readonly id: string;
  readonly title: string;
  readonly cell: (row: R) => ReactNode;
  /** The least width in pixels; columns of the lowest `rank` leave a narrow table first. */
  readonly least: number;
  /** The same on a phone. */
  readonly tight?: number;
  /** The share of the width that is left over. */
  readonly grow?: number;
  readonly rank?: number;
  readonly numeric?: boolean;
  readonly sorts?: boolean;
}

export interface Sort {
  readonly by: string;
  readonly descending: boolean;
}

interface TableProps<R> {
  readonly label: string;
  readonly columns: readonly Column<R>[];
  /** A row may be missing while its page is on the way. */
  readonly row: (index: number) => R | undefined;
  readonly total: number;
  readonly keyOf: (row: R) => string;
  readonly sort?: Sort;
  readonly onSort?: (sort: Sort) => void;
  readonly onSeen?: (first: number, last: number) => void;
  readonly selection?: ReadonlySet<string>;
  readonly onSelect?: (row: R, chosen: boolean) => void;
  readonly onSelectAll?: (chosen: boolean) => void;
  readonly nameOf?: (row: R) => string;
  readonly onOpen?: (row: R) => void;
  readonly active?: string;
  readonly empty?: ReactNode;
  readonly height?: number;
}

const CHECK = 44;
/** The width in pixels up to which a table counts as one on a phone. */
const PHONE = 500;

/** The columns that fit: those of the lowest rank go first. */
function fitting<R>(columns: readonly Column<R>[], width: number): readonly Column<R>[] {
  const kept = [...columns];
  const needed = () => kept.reduce((sum, column) => sum + column.least, 0);
  while (kept.length > 1 && needed() > width) {
    const lowest = kept.reduce((low, column) => ((column.rank ?? 9) <= (low.rank ?? 9) ? column : low));
    kept.splice(kept.indexOf(lowest), 1);
  }
  return kept;
}

/** A text that does not fit its cell is shown whole to the mouse. */
function showWhole(event: MouseEvent<HTMLDivElement>): void {
  const cell = (event.target as HTMLElement).closest<HTMLElement>("[role=cell]");
  if (cell && cell.scrollWidth > cell.clientWidth) cell.title = cell.innerText;
  else if (cell?.title) cell.removeAttribute("title");
}

/** A table of any length: only the rows that are seen are in the page. Arrow keys go from row to row. */
export function Table<R>(props: TableProps<R>): ReactNode {
  const { columns, row, total, keyOf, sort, onSort, onSeen, selection, onSelect, onOpen, height = 44 } = props;
  const { ref: sized, width } = useElementSize<HTMLDivElement>();
  const scroller = useRef<HTMLDivElement>(null);
  const merged = useMergedRef(sized, scroller);
  const virtual = useVirtualizer({
    count: total,
    getScrollElement: () => scroller.current,
    estimateSize: () => height,
    overscan: 8,
  });
  const fitted = width && width < PHONE ? columns.map((one) => ({ ...one, least: one.tight ?? one.least })) : columns;
  const shown = fitting(fitted, (width || 1000) - (onSelect ? CHECK : 0) - 16);
  const template = [
    ...(onSelect ? [`${CHECK}px`] : []),
    ...shown.map((column) => `minmax(${column.least}px, ${column.grow ?? 0.001}fr)`),
  ].join(" ");
  const items = virtual.getVirtualItems();
  const first = items[0]?.index ?? 0;
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => onSeen?.(first, last), [onSeen, first, last]);

  const go = useCallback(
    (event: KeyboardEvent<HTMLDivElement>) => {
      const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
      if (step === undefined && event.key !== "Home" && event.key !== "End") return;
      if (event.target instanceof HTMLInputElement && event.target.type !== "checkbox") return;
      const from = Number((event.target as HTMLElement).closest("[data-row]")?.getAttribute("data-row") ?? -1);
      const wanted = event.key === "Home" ? 0 : event.key === "End" ? total - 1 : from + (step ?? 0);
      const to = Math.min(Math.max(wanted, 0), total - 1);
      if (to < 0) return;
      event.preventDefault();
      virtual.scrollToIndex(to);
      const focus = (tries: number) => {
        const found = scroller.current?.querySelector<HTMLElement>(
          `[data-row="${to}"] a, [data-row="${to}"] button, [data-row="${to}"] input`,
        );
        if (found) found.focus();
        else if (tries > 0) requestAnimationFrame(() => focus(tries - 1));
      };
      requestAnimationFrame(() => focus(10));
    },
    [total, virtual],
  );

  const wholeSelected = selection !== undefined && total > 0 && selection.size >= total;
  return (
    <div className="table" ref={merged} onKeyDown={go} onMouseOver={showWhole}>
      <div role="table" aria-label={props.label} aria-rowcount={total + 1}>
        <div className="table-head" role="row" style={{ gridTemplateColumns: template }} aria-rowindex={1}>
          {onSelect && (
            <div role="columnheader" className="check">
              {props.onSelectAll && (
                <Checkbox
                  size="xs"
                  aria-label={strings.table.selectAll}
                  checked={wholeSelected}
                  indeterminate={!wholeSelected && (selection?.size ?? 0) > 0}
                  onChange={(event) => props.onSelectAll?.(event.currentTarget.checked)}
                />
              )}
            </div>
          )}
          {shown.map((column) => (
            <Head key={column.id} column={column} sort={sort} onSort={onSort} />
          ))}
        </div>
        <div role="rowgroup" className="table-body" style={{ height: virtual.getTotalSize() }}>
          {items.map((item) => {
            const one = row(item.index);
            const key = one === undefined ? `waiting-${item.index}` : keyOf(one);
            return (
              <div
                key={item.key}
                role="row"
                data-row={item.index}
                aria-rowindex={item.index + 2}
                aria-selected={selection && one ? selection.has(key) : undefined}
                className={one && props.active === key ? "table-row active" : "table-row"}
                style={{ gridTemplateColumns: template, height: item.size, transform: `translateY(${item.start}px)` }}
                onClick={(event) => {
                  const onControl = (event.target as HTMLElement).closest("a, button, input, label");
                  if (one && onOpen && !onControl && !getSelection()?.toString()) onOpen(one);
                }}
              >
                {onSelect && (
                  <div role="cell" className="check">
                    {one && (
                      <Checkbox
                        size="xs"
                        aria-label={strings.table.select(props.nameOf?.(one) ?? key)}
                        checked={selection?.has(key) ?? false}
                        onChange={(event) => onSelect(one, event.currentTarget.checked)}
                      />
                    )}
                  </div>
                )}
                {shown.map((column) => (
                  <div key={column.id} role="cell" className={column.numeric ? "numeric" : undefined}>
                    {one === undefined ? <span className="waiting" /> : column.cell(one)}
                  </div>
                ))}
              </div>
            );
          })}
        </div>
      </div>
      {total === 0 && <div className="table-empty">{props.empty ?? strings.table.empty}</div>}
    </div>
  );
}

function Head<R>({
  column,
  sort,
  onSort,
}: {
  column: Column<R>;
  sort: Sort | undefined;
  onSort: ((sort: Sort) => void) | undefined;
}): ReactNode {
  const sorted = sort?.by === column.id ? (sort.descending ? "descending" : "ascending") : undefined;
  const canSort = column.sorts && onSort;
  return (
    <div
      role="columnheader"
      className={column.numeric ? "numeric" : undefined}
      aria-sort={canSort ? (sorted ?? "none") : undefined}
    >
      {canSort ? (
        <button
          type="button"
          className={sorted ? "sorted" : undefined}
          title={sorted ? strings.table.turn : strings.table.sort}
          onClick={() =>
            onSort({ by: column.id, descending: sorted ? sorted === "ascending" : Boolean(column.numeric) })
          }
        >
          {column.title}
          <span aria-hidden="true" className="sort-mark">
            {sorted === "ascending" ? "▲" : sorted === "descending" ? "▼" : "↕"}
          </span>
        </button>
      ) : (
        column.title
      )}
    </div>
  );
}
