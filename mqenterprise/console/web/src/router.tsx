import {
  createHashHistory,
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
} from "@tanstack/react-router";
import { Broken } from "./shell/Broken";
import { Missing } from "./shell/Missing";
import { fileOf } from "./shell/screenFiles";
import { Shell } from "./shell/Shell";

/** Texts of an address, and nothing else: what is not known is left out. */
function texts<const N extends string>(...names: N[]) {
  return (search: Record<string, unknown>): Partial<Record<N, string>> => {
    const found: Partial<Record<N, string>> = {};
    for (const name of names) {
      const value = search[name];
      if (typeof value === "string" || typeof value === "number") found[name] = String(value);
    }
    return found;
  };
}

/** The same with a list of conditions for messages: each a text of its own, whatever characters it has. */
function withConditions<const N extends string>(...names: N[]) {
  const others = texts(...names);
  return (search: Record<string, unknown>): Partial<Record<N, string>> & { where?: readonly string[] | undefined } => {
    const found = Array.isArray(search.where) ? search.where : [search.where];
    const where = found.filter((one) => typeof one === "string" || typeof one === "number").map(String);
    return { ...others(search), ...(where.length && { where }) };
  };
}

const root = createRootRoute({ component: Shell, notFoundComponent: Missing });

const map = createRoute({
  getParentRoute: () => root,
  path: "/",
  validateSearch: texts("at", "find"),
  component: lazyRouteComponent(() => fileOf(() => import("./screens/StartScreen")), "StartScreen"),
});
const node = createRoute({
  getParentRoute: () => root,
  path: "/nodes/$machine",
  component: lazyRouteComponent(() => fileOf(() => import("./screens/NodeScreen")), "NodeScreen"),
});
const queues = createRoute({
  getParentRoute: () => root,
  path: "/queues",
  validateSearch: texts("name", "kind", "site", "machine", "only", "sort"),
  component: lazyRouteComponent(() => fileOf(() => import("./screens/QueuesScreen")), "QueuesScreen"),
});
const queue = createRoute({
  getParentRoute: () => root,
  path: "/queues/$machine/$queue",
  validateSearch: withConditions("tab", "span", "open"),
  component: lazyRouteComponent(() => fileOf(() => import("./screens/QueueScreen")), "QueueScreen"),
});
const message = createRoute({
  getParentRoute: () => root,
  path: "/queues/$machine/$queue/$lookup",
  component: lazyRouteComponent(() => fileOf(() => import("./screens/MessageScreen")), "MessageScreen"),
});
const search = createRoute({
  getParentRoute: () => root,
  path: "/search",
  validateSearch: withConditions("queue", "machine", "site", "without"),
  component: lazyRouteComponent(() => fileOf(() => import("./screens/SearchScreen")), "SearchScreen"),
});
const waiting = createRoute({
  getParentRoute: () => root,
  path: "/waiting",
  validateSearch: texts("at", "machine", "link"),
  component: lazyRouteComponent(() => fileOf(() => import("./screens/WaitingScreen")), "WaitingScreen"),
});
const life = createRoute({
  getParentRoute: () => root,
  path: "/life",
  validateSearch: texts("id"),
  component: lazyRouteComponent(() => fileOf(() => import("./screens/LifeScreen")), "LifeScreen"),
});
const failures = createRoute({
  getParentRoute: () => root,
  path: "/failures",
  validateSearch: texts("by", "queue"),
  component: lazyRouteComponent(() => fileOf(() => import("./screens/FailuresScreen")), "FailuresScreen"),
});
const routes = createRoute({
  getParentRoute: () => root,
  path: "/routes",
  validateSearch: texts("from", "to", "without", "links"),
  component: lazyRouteComponent(() => fileOf(() => import("./screens/RoutesScreen")), "RoutesScreen"),
});
const keys = createRoute({
  getParentRoute: () => root,
  path: "/keys",
  component: lazyRouteComponent(() => fileOf(() => import("./screens/KeysScreen")), "KeysScreen"),
});
const plan = createRoute({
  getParentRoute: () => root,
  path: "/plan",
  component: lazyRouteComponent(() => fileOf(() => import("./screens/PlanScreen")), "PlanScreen"),
});
const jobs = createRoute({
  getParentRoute: () => root,
  path: "/jobs",
  validateSearch: texts("state", "show"),
  component: lazyRouteComponent(() => fileOf(() => import("./screens/JobsScreen")), "JobsScreen"),
});
const job = createRoute({
  getParentRoute: () => root,
  path: "/jobs/$machine/$number",
  component: lazyRouteComponent(() => fileOf(() => import("./screens/JobScreen")), "JobScreen"),
});
const audit = createRoute({
  getParentRoute: () => root,
  path: "/audit",
  validateSearch: texts("who", "machine", "what", "show"),
  component: lazyRouteComponent(() => fileOf(() => import("./screens/AuditScreen")), "AuditScreen"),
});

export const router = createRouter({
  history: createHashHistory(),
  routeTree: root.addChildren([
    map,
    node,
    queues,
    queue,
    message,
    search,
    waiting,
    life,
    failures,
    routes,
    keys,
    plan,
    jobs,
    job,
    audit,
  ]),
  defaultPreload: "intent",
  defaultErrorComponent: Broken,
  scrollRestoration: false,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
