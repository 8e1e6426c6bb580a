import { strings } from "../../strings";

/** The name of a queue without what all queues of its machine have in common. */
export function shortName(row: { readonly pathname: string; readonly machine: string }): string {
  const start = `${row.machine}\\`.toLowerCase();
  const name = row.pathname.toLowerCase().startsWith(start) ? row.pathname.slice(start.length) : row.pathname;
  return name.replace(/^private\$\\/i, "");
}

/** A name that somebody gave for a queue, as short as that of a queue in a list. */
export function wordOf(machine: string, name: string): string {
  return shortName({ machine, pathname: name.replace(/^direct=os:/i, "").replace(/^\.\\/, `${machine}\\`) });
}

/** The name of a queue in a list: of an outgoing queue, where its messages go. */
export function listName(row: {
  readonly pathname: string;
  readonly machine: string;
  readonly queue_type: string;
  readonly destination: string;
}): string {
  const name = shortName(row).replace(/;JOURNAL$/, ";journal");
  if (row.queue_type === "dead letters")
    return /xact$/i.test(name) ? strings.queues.deadTransactional : strings.queues.dead;
  if (row.queue_type === "journal" && /^system\$/i.test(name)) return strings.queues.sent;
  return row.destination ? `→ ${row.destination.replace(/\\private\$\\/i, "\\")}` : name;
}

/** The kinds of queues that programs receive from, and that are made and deleted. */
export const IN_USE: readonly string[] = ["private", "public"];

export const isJournal = (name: string) => /;journal$/i.test(name);
export const isDeadLetters = (name: string) => /system\$;dead(letter|xact)$/i.test(name);
