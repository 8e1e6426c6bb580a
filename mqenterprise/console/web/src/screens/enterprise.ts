import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { calls } from "../api/calls";
import type { Overview } from "../api/types";
import { type MapLink, type MapSite, worst } from "../map/model";

export const REFRESH = 2500;
/** An answer that takes long keeps its nodes busy for one part in so many of the time. */
const REST = 10;

/** An answer, and the milliseconds that it took. */
export async function timed<T extends object>(answer: Promise<T>): Promise<T & { readonly took: number }> {
  const began = performance.now();
  return { ...(await answer), took: performance.now() - began };
}

/** How soon an answer is asked for again. */
export function paced(query: { readonly state: { readonly data: { readonly took: number } | undefined } }): number {
  return Math.max(REFRESH, REST * (query.state.data?.took ?? 0));
}

export function useOverview() {
  return useQuery({
    queryKey: ["overview"],
    queryFn: ({ signal }) => calls.overview(signal),
    refetchInterval: REFRESH,
    placeholderData: keepPreviousData,
  });
}

/** Sites with their nodes, and links, as the map draws them. */
export function useEnterprise(overview: Overview | undefined): { sites: MapSite[]; links: MapLink[] } {
  return useMemo(() => {
    const nodes = Map.groupBy(overview?.nodes ?? [], (node) => node.site);
    const sites = (overview?.sites ?? []).map((site): MapSite => {
      const here = (nodes.get(site.name) ?? []).map((node) => ({
        name: node.machine,
        state: node.state,
        gate: node.gate,
        router: node.routing_server,
        reason: node.reason,
      }));
      return {
        id: site.name,
        name: site.name,
        foreign: site.foreign,
        nodes: here,
        state: worst(here.map((node) => node.state)),
      };
    });
    const links = (overview?.links ?? []).map((link): MapLink => ({ ...link, id: `${link.first}\n${link.second}` }));
    return { sites, links };
  }, [overview]);
}
