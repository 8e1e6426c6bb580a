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
