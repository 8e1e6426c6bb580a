import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { calls } from "../../api/calls";
import type { Message, QueueRow } from "../../api/types";
import { visible } from "../../parts/text";
import { strings } from "../../strings";
import { useOverview } from "../enterprise";
import { isDeadLetters, shortName } from "../queue/names";

const s = strings.operation;
const MOST_OFFERED = 50;
const MOST_COMPARED = 500;

/** A queue by the machine that has it, and its name there. */
export interface Place {
  readonly machine: string;
  readonly name: string;
}

/** The place that a target names, seen from a machine; null if its text does not say it. */
export function placeOf(target: string, machine: string): Place | null {
  const text = target.trim().replace(/^direct=os:/i, "");
  const [first = "", ...rest] = text.split("\\");
  if (first.includes("=")) return null;
  if (rest.length === 0) return { machine, name: `private$\\${text}` };
  if (first.toLowerCase() === "private$") return { machine, name: text };
  return { machine: first === "." ? machine : (first.split(".")[0] ?? ""), name: rest.join("\\") };
}

/** A queue as a target: short on the machine where the operation runs. */
function targetOf(row: QueueRow, machine: string): string {
  const isPrivateHere = row.machine === machine && row.queue_type === "private";
  return isPrivateHere ? shortName(row) : row.pathname;
}

/** Headers in which NServiceBus and Rebus name the queue whose consumer failed: `queue@machine`. */
const FAILED_QUEUE = ["NServiceBus.FailedQ", "rbs2-source-queue"];

/** Where a message failed or was sent to, as Return has it; empty if nothing says it. */
export function returnTarget(machine: string, queue: string, message: Message): string {
  const address = FAILED_QUEUE.map((name) => message.headers?.[name]?.trim()).find(Boolean);
  if (address) {
    const [, name = address, other = ""] = /^(.*)@([^@]*)$/s.exec(address) ?? [];
    const isHere = [machine.toLowerCase(), ".", ""].includes(other.toLowerCase());
    return address.includes("\\") || isHere ? name : `${other}\\private$\\${name}`;
  }
  if (isDeadLetters(queue)) return message.destination;
  const [owner = "", sub] = queue.split(";");
  return sub === undefined ? "" : shortName({ machine, pathname: owner });
}

/** Queues that a text may mean, those of the machine itself first. */
export function useOffered(machine: string, text: string): readonly { value: string; label: string }[] {
  const search = (placeOf(text, machine)?.name ?? text).replace(/^private\$\\/i, "");
  const found = useQuery({
    queryKey: ["targets", search],
    queryFn: ({ signal }) => calls.queues({ search, type: ["private", "public"], limit: MOST_OFFERED }, signal),
    placeholderData: keepPreviousData,
  });
  const rows = [...(found.data?.queues ?? [])].sort(
    (one, other) => Number(other.machine === machine) - Number(one.machine === machine),
  );
  return rows.map((row) => ({
    value: targetOf(row, machine),
    label: `${visible(shortName(row))} ${s.on} ${visible(row.machine)}`,
  }));
}

/** Why a target on another machine may be a mistake: nobody but that machine can check it. */
export function useDoubt(machine: string, target: string, enabled: boolean): string | null {
  const place = placeOf(target, machine);
  const isElsewhere = place === null || place.machine.toLowerCase() !== machine.toLowerCase();
  const nodes = useOverview().data?.nodes;
  const found = useQuery({
    queryKey: ["target", place],
    queryFn: ({ signal }) =>
      calls.queues(
        { search: place?.name.split(";")[0], machine: place ? [place.machine] : [], limit: MOST_COMPARED },
        signal,
      ),
    enabled: enabled && isElsewhere && place !== null,
  });
  if (!enabled || !isElsewhere || !target.trim()) return null;
  if (place === null) return s.unchecked;
  const name = visible(place.name);
  const node = nodes?.find((one) => one.machine.toLowerCase() === place.machine.toLowerCase());
  if (!node) return nodes ? s.noMachine(visible(place.machine)) : null;
  if (!found.data) return null;
  const pathname = `${place.machine}\\${place.name.split(";")[0]}`.toLowerCase();
  if (found.data.queues.some((row) => row.pathname.toLowerCase() === pathname)) return null;
  return found.data.stale.length ? s.silent(node.machine, name) : s.noQueue(node.machine, name);
}
