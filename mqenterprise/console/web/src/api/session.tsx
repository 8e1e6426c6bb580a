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

/** Whose data the page has. */
let shown: Session | null = null;

export function useCurrentSession() {
  const queries = useQueryClient();
  useEffect(() => onSignedOut(() => void queries.invalidateQueries({ queryKey: ["session"] })), [queries]);
  return useQuery({
    queryKey: ["session"],
    queryFn: async ({ signal }) => {
      const session = await get<Session>("session", {}, signal);
      setToken(session.csrf);
      if (session.signed_in) {
        // Nothing of one person is left for the next; and one who has other rights now sees what these permit.
        if (shown && shown.name !== session.name) queries.removeQueries({ predicate: isOfScreens });
        else if (shown && shown.roles.join() !== session.roles.join())
          void queries.invalidateQueries({ predicate: isOfScreens });
        shown = session;
      }
      return session;
    },
    // The person may sign in again in another tab.
    staleTime: (query) => (query.state.data?.signed_in ? 60_000 : 0),
    refetchInterval: (query) => (query.state.data?.signed_in || !shown ? 60_000 : 5_000),
  });
}

function isOfScreens(query: { readonly queryKey: readonly unknown[] }): boolean {
  return query.queryKey[0] !== "session";
}

export function useSignIn() {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (credentials: Record<string, string>) => post<unknown>("session", credentials),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["session"] }),
  });
}

export function useSignOut(): (everywhere: boolean) => void {
  return (everywhere) => {
    // Loaded again, so that nothing of one person is left for the next.
    void remove("session", everywhere ? { everywhere } : {}).finally(() => location.reload());
  };
}
