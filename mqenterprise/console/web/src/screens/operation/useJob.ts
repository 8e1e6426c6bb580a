import { useQuery } from "@tanstack/react-query";
import { calls } from "../../api/calls";

const FAST = 500;
const SLOW = 3000;

export function isOver(state: string | undefined): boolean {
  return state === "done" || state === "cancelled";
}

/** A job, asked for again until it is over. */
export function useJob(machine: string, number: number | undefined) {
  return useQuery({
    queryKey: ["job", machine, number],
    queryFn: ({ signal }) => calls.job(machine, number ?? 0, signal),
    enabled: number !== undefined,
    refetchInterval: (query) => {
      const state = query.state.data?.state;
      return isOver(state) ? false : state === "paused" ? SLOW : FAST;
    },
  });
}

export function useJobLog(machine: string, number: number | undefined, after: number, enabled = true) {
  return useQuery({
    queryKey: ["job", machine, number, "log", after],
    queryFn: ({ signal }) => calls.jobLog(machine, number ?? 0, after, signal),
    enabled: enabled && number !== undefined,
  });
}
