/** Addresses after `#`: the screen that they name, and links and moves from one to another. */

import {
  type AnchorHTMLAttributes,
  Component,
  createContext,
  lazy,
  type ReactNode,
  startTransition,
  Suspense,
  use,
  useEffect,
  useState,
} from "react";
import { Waiting } from "./parts/Notices";
import { Broken } from "./shell/Broken";
import { Missing } from "./shell/Missing";
import { fileOf } from "./shell/screenFiles";
import { Shell } from "./shell/Shell";

type Texts<N extends string = never> = { readonly [K in N]?: string | undefined };
interface Conditions {
  /** Conditions for messages: each a text of its own, whatever characters it has. */
  readonly where?: readonly string[] | undefined;
}

/** Every screen by its path, in which `$` begins the name of a parameter, with what may stand after `?`. */
interface Searches {
  "/": Texts<"at" | "find">;
  "/nodes/$machine": Texts;
  "/queues": Texts<"name" | "kind" | "site" | "machine" | "only" | "sort">;
  "/queues/$machine/$queue": Texts<"tab" | "span" | "open"> & Conditions;
  "/queues/$machine/$queue/$lookup": Texts;
  "/search": Texts<"queue" | "machine" | "site" | "without"> & Conditions;
  "/waiting": Texts<"at" | "machine" | "link">;
  "/life": Texts<"id">;
  "/failures": Texts<"by" | "queue">;
  "/routes": Texts<"from" | "to" | "without" | "links">;
  "/keys": Texts;
  "/plan": Texts;
  "/moving": Texts<"at" | "find" | "place">;
  "/jobs": Texts<"state" | "show">;
  "/jobs/$machine/$number": Texts;
  "/audit": Texts<"who" | "machine" | "what" | "show">;
}
type Path = keyof Searches;
type Names<P> = P extends `${string}$${infer N}/${infer R}`
  ? N | Names<R>
  : P extends `${string}$${infer N}`
    ? N
    : never;
type Params<P extends Path> = Readonly<Record<Names<P>, string>>;
/** A path without parameters. */
export type Simple = { [P in Path]: [Names<P>] extends [never] ? P : never }[Path];

const FILES: Record<Path, () => Promise<{ default: () => ReactNode }>> = {
  "/": () => import("./screens/StartScreen").then((file) => ({ default: file.StartScreen })),
  "/nodes/$machine": () => import("./screens/NodeScreen").then((file) => ({ default: file.NodeScreen })),
  "/queues": () => import("./screens/QueuesScreen").then((file) => ({ default: file.QueuesScreen })),
  "/queues/$machine/$queue": () => import("./screens/QueueScreen").then((file) => ({ default: file.QueueScreen })),
  "/queues/$machine/$queue/$lookup": () =>
    import("./screens/MessageScreen").then((file) => ({ default: file.MessageScreen })),
  "/search": () => import("./screens/SearchScreen").then((file) => ({ default: file.SearchScreen })),
  "/waiting": () => import("./screens/WaitingScreen").then((file) => ({ default: file.WaitingScreen })),
  "/life": () => import("./screens/LifeScreen").then((file) => ({ default: file.LifeScreen })),
  "/failures": () => import("./screens/FailuresScreen").then((file) => ({ default: file.FailuresScreen })),
  "/routes": () => import("./screens/RoutesScreen").then((file) => ({ default: file.RoutesScreen })),
  "/keys": () => import("./screens/KeysScreen").then((file) => ({ default: file.KeysScreen })),
  "/plan": () => import("./screens/PlanScreen").then((file) => ({ default: file.PlanScreen })),
  "/moving": () => import("./screens/MovingScreen").then((file) => ({ default: file.MovingScreen })),
  "/jobs": () => import("./screens/JobsScreen").then((file) => ({ default: file.JobsScreen })),
  "/jobs/$machine/$number": () => import("./screens/JobScreen").then((file) => ({ default: file.JobScreen })),
  "/audit": () => import("./screens/AuditScreen").then((file) => ({ default: file.AuditScreen })),
};
const PATHS = Object.keys(FILES) as Path[];
const SCREENS = Object.fromEntries(PATHS.map((path) => [path, lazy(() => fileOf(FILES[path]))])) as Record<
  Path,
  ReturnType<typeof lazy<() => ReactNode>>
>;

interface Place {
  /** The path of its screen; null if there is none. */
  readonly screen: Path | null;
  /** The path without search. */
  readonly path: string;
  readonly params: Readonly<Record<string, string>>;
  readonly search: Readonly<Record<string, string | readonly string[] | undefined>>;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // typed by hand
  }
}

/** The parameters that a path has by a pattern; null if it is of another screen. */
function matched(pattern: string, path: string): Record<string, string> | null {
  const names = pattern.split("/");
  const parts = path.split("/");
  if (names.length !== parts.length) return null;
  const params: Record<string, string> = {};
  for (const [index, name] of names.entries()) {
    const part = parts[index] ?? "";
    if (name.startsWith("$") && part) params[name.slice(1)] = decoded(part);
    else if (name !== part) return null;
  }
  return params;
}

function placeOf(address: string, before?: Place): Place {
  const [path = "", query = ""] = address.split(/\?(.*)/s);
  const given = new URLSearchParams(query);
  const conditions = given.getAll("where");
  const old = before?.search.where;
  const where = Array.isArray(old) && old.join("\0") === conditions.join("\0") ? old : conditions;
  given.delete("where");
  const search = { ...Object.fromEntries(given), ...(where.length && { where }) };
  for (const screen of PATHS) {
    const params = matched(screen, path);
    if (params) return { screen, path, params, search };
  }
  return { screen: null, path, params: {}, search };
}

let place = placeOf(location.hash.slice(1) || "/");
const watchers = new Set<() => void>();

function arrive(): void {
  place = placeOf(location.hash.slice(1) || "/", place);
  for (const watcher of watchers) watcher();
}
addEventListener("popstate", arrive);

interface Target<P extends Path> {
  readonly to: P;
  readonly search?: Searches[P];
}

type To<P extends Path> = Target<P> & ([Names<P>] extends [never] ? { params?: never } : { params: Params<P> });

function addressOf(to: string, params: Readonly<Record<string, string>>, search: object): string {
  const path = to.replace(/\$(\w+)/g, (_, name: string) => encodeURIComponent(params[name] ?? ""));
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(search as Record<string, string | readonly string[] | undefined>)) {
    if (typeof value === "string") query.append(name, value);
    else for (const one of value ?? []) query.append(name, one);
  }
  return query.size ? `#${path}?${query}` : `#${path}`;
}

/** The address of a screen. */
export function hrefOf<P extends Path>({ to, params, search = {} }: To<P>): string {
  return addressOf(to, params ?? {}, search);
}

/** Go to a screen; with `replace`, the way back leads past the present one. */
export function go<P extends Path>({ replace = false, ...target }: To<P> & { replace?: boolean }): void {
  move(hrefOf(target as To<P>), replace);
}

function move(address: string, replace: boolean): void {
  if (address === location.hash) return;
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  arrive();
}

const Here = createContext(place);

/** The path of the screen that is shown. */
export function usePath(): string {
  return use(Here).path;
}

/** The parameters of the screen, which the caller is a part of. */
// eslint-disable-next-line @typescript-eslint/no-unused-vars -- says the type
export function useParams<P extends Path>(_screen: P): Params<P> {
  return use(Here).params as Params<P>;
}

/** What stands after `?` in the address of the screen that the caller is a part of, and a way to change it. */
export function useSearch<P extends Path>(
  screen: P,
): readonly [Searches[P], (change: (old: Searches[P]) => Searches[P], replace?: boolean) => void] {
  return [use(Here).search as Searches[P], changeOf[screen] as never];
}

const changeOf = Object.fromEntries(
  PATHS.map((screen) => [
    screen,
    (change: (old: object) => object, replace = true) => {
      if (place.screen !== screen) return; // the person has gone elsewhere
      move(addressOf(screen, place.params, change(place.search)), replace);
    },
  ]),
);

type LinkProps<P extends Path> = To<P> & Omit<AnchorHTMLAttributes<HTMLAnchorElement>, "href">;

/** A link to a screen, whose file is fetched as soon as somebody points at it. */
export function Link<P extends Path>({ to, params, search, ...others }: LinkProps<P>): ReactNode {
  const fetched = () => void FILES[to as Path]().catch(() => undefined);
  return (
    <a {...others} href={addressOf(to, params ?? {}, search ?? {})} onPointerEnter={fetched} onFocus={fetched}>
      {others.children}
    </a>
  );
}

interface BoundedProps {
  readonly path: string;
  readonly children: ReactNode;
}

/** A screen that fails says so in its place, until the person goes to another. */
class Bounded extends Component<BoundedProps, { error: Error | null }> {
  override state: { error: Error | null } = { error: null };
  static getDerivedStateFromError(error: Error): { error: Error } {
    return { error };
  }
  override componentDidUpdate(before: BoundedProps): void {
    if (this.state.error && before.path !== this.props.path) this.setState({ error: null });
  }
  override render(): ReactNode {
    return this.state.error ? <Broken error={this.state.error} /> : this.props.children;
  }
}

/** The screen of the address. The one before is shown until the file of the next is there. */
export function Router(): ReactNode {
  const [here, setHere] = useState(place);
  useEffect(() => {
    const follow = () => {
      if (place.screen === shown) setHere(place);
      else startTransition(() => setHere(place));
      shown = place.screen;
    };
    let shown = place.screen;
    setHere(place);
    watchers.add(follow);
    return () => void watchers.delete(follow);
  }, []);
  const Screen = here.screen ? SCREENS[here.screen] : Missing;
  return (
    <Here value={here}>
      <Shell>
        <Bounded path={here.path}>
          <Suspense fallback={<Waiting />}>
            <Screen />
          </Suspense>
        </Bounded>
      </Shell>
    </Here>
  );
}
