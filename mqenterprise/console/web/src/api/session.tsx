import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { createContext, useContext, useEffect } from "react";
import { get, onSignedOut, post, remove, setToken } from "./client";
import type { Role, Session } from "./types";

export const SessionContext = createContext<Session | null>(null);

/** The person who is signed in. Only below `Entrance`. */
export function useSession(): Session {
  const session = useContext(SessionContext);
  if (!session) throw new Error("nobody is signed in");
  return session;
}

/** Whether the person has a role. The server decides; this only spares what it would refuse. */
export function useMay(role: Role): boolean {
  return useSession().roles.includes(role);
}

export function useCurrentSession() {
  const queries = useQueryClient();
  useEffect(() => onSignedOut(() => void queries.invalidateQueries({ queryKey: ["session"] })), [queries]);
  return useQuery({
    queryKey: ["session"],
    queryFn: async ({ signal }) => {
      const session = await get<Session>("session", {}, signal);
      setToken(session.csrf);
      return session;
    },
    staleTime: 60_000,
    refetchInterval: 60_000,
  });
}

export function useSignIn() {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (credentials: Record<string, string>) => post<unknown>("session", credentials),
    onSuccess: () => {
      queries.removeQueries({ predicate: (query) => query.queryKey[0] !== "session" });
      return queries.invalidateQueries({ queryKey: ["session"] });
    },
  });
}

export function useSignOut(): (everywhere: boolean) => void {
  const queries = useQueryClient();
  return (everywhere) => {
    void remove("session", everywhere ? { everywhere } : {}).finally(() => {
      // Nothing of one person is left for the next.
      queries.removeQueries({ predicate: (query) => query.queryKey[0] !== "session" });
      void queries.invalidateQueries({ queryKey: ["session"] });
    });
  };
}
