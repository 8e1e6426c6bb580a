import { useQuery, useQueryClient } from "@tanstack/react-query";
import { calls } from "../../api/calls";
import type { FoundPage } from "../../api/types";

/** The messages before and after one: as the list has them that led here, else as the queue has them. */
export function useNeighbours(machine: string, queue: string, lookup: string): { previous?: string; next?: string } {
  const queries = useQueryClient();
  const lists = queries
    .getQueriesData<FoundPage>({ queryKey: ["messages", machine, queue] })
    .flatMap(([, page]) => (page ? [page.found.map((one) => one.message.lookup_identifier)] : []));
  const list = lists.findLast((one) => one.includes(lookup)) ?? [];
  const at = list.indexOf(lookup);
  const previous = at > 0 ? list[at - 1] : undefined;
  const listed = at >= 0 ? list[at + 1] : undefined;
  const after = useQuery({
    queryKey: ["after", machine, queue, lookup],
    queryFn: ({ signal }) => calls.after(machine, queue, lookup, signal),
    enabled: listed === undefined,
  });
  const next = listed ?? after.data?.messages[0]?.lookup_identifier;
  return { ...(previous !== undefined && { previous }), ...(next !== undefined && { next }) };
}
