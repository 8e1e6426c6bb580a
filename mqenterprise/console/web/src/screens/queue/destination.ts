import { useQuery } from "@tanstack/react-query";
import { calls } from "../../api/calls";
import type { NodeState } from "../../api/types";
import { strings } from "../../strings";
import { useOverview } from "../enterprise";

const MOST_ASKED = 30;

interface Destination {
  /** The best name that is known. */
  readonly name: string;
  /** Whether it is the name that the outgoing queue has. */
  readonly isOwn: boolean;
}

/** The path name of a queue by its format name, as the node says that has it. */
async function pathnameOf(nodes: readonly NodeState[], name: string, signal: AbortSignal): Promise<string | null> {
  const answers = await Promise.allSettled(nodes.map((node) => calls.queue(node.machine, name, signal)));
  for (const answer of answers)
    if (answer.status === "fulfilled" && answer.value.queue_type !== "outgoing") return answer.value.pathname;
  return null;
}

/** Where the messages of an outgoing queue go, as well as the console knows. */
export function useDestination(name: string, isOutgoing: boolean): Destination {
  const nodes = (useOverview().data?.nodes ?? []).filter((node) => node.state !== "down");
  const [kind = "", rest = ""] = name.split(/=(.*)/s);
  const isPrivate = kind.toLowerCase() === "private";
  const isPublic = kind.toLowerCase() === "public";
  const identifier = (rest.split("\\")[0] ?? "").toLowerCase();
  const owner = isPrivate ? nodes.find((node) => node.identifier?.toLowerCase() === identifier) : undefined;
  const asked = owner ? [owner] : isPublic ? nodes.slice(0, MOST_ASKED) : [];
  const found = useQuery({
    queryKey: ["destination", name, asked.map((node) => node.machine)],
    queryFn: ({ signal }) => pathnameOf(asked, name, signal),
    enabled: isOutgoing && asked.length > 0,
    staleTime: 60_000,
  });
  if (!isOutgoing) return { name, isOwn: true };
  if (found.data) return { name: found.data, isOwn: false };
  if (owner) return { name: strings.queue.someQueue(owner.machine), isOwn: false };
  if (isPrivate) return { name: strings.queue.unknownMachine, isOwn: false };
  if (isPublic) return { name: strings.queue.unknownPublic, isOwn: false };
  const direct = /^direct=(?:os:)?(.*)$/is.exec(name)?.[1];
  return { name: direct ?? name, isOwn: true };
}
