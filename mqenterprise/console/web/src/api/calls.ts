/** Every call that the screens make, by name. */

import { get, part, parts, patch, post, type Query, remove } from "./client";
import type {
  Access,
  AuditEntry,
  Connection,
  Explanation,
  Moving,
  FailureGroup,
  FoundPage,
  History,
  ImportedMessage,
  ImportResult,
  Job,
  JobLog,
  Keys,
  Message,
  NewJob,
  NodeDocument,
  Overview,
  MachinePlan,
  Plan,
  Queue,
  QueuePage,
  Quotas,
  Rotation,
  RotationAction,
  RotationRun,
  Simulation,
  Stale,
  WaitingRow,
} from "./types";

const node = (machine: string) => `nodes/${part(machine)}/v1`;
const queueOf = (machine: string, queue: string) => `${node(machine)}/queues/${part(queue)}`;

export const calls = {
  waiting: (query: Query, signal?: AbortSignal) =>
    get<{ waiting: readonly WaitingRow[]; stale: readonly Stale[] }>("waiting", query, signal),
  overview: (signal?: AbortSignal) => get<Overview>("overview", {}, signal),
  node: (machine: string, signal?: AbortSignal) => get<NodeDocument>(`${node(machine)}/node`, {}, signal),
  quotas: (machine: string, signal?: AbortSignal) => get<Quotas>(`${node(machine)}/quotas`, {}, signal),
  connections: (machine: string, signal?: AbortSignal) =>
    get<{ connections: readonly Connection[] }>(`${node(machine)}/connections`, {}, signal),
  queues: (query: Query, signal?: AbortSignal) => get<QueuePage>("queues", query, signal),
  queue: (machine: string, queue: string, signal?: AbortSignal) => get<Queue>(queueOf(machine, queue), {}, signal),
  createQueue: (machine: string, properties: unknown) => post<Queue>(`${node(machine)}/queues`, properties),
  changeQueue: (machine: string, queue: string, changes: unknown) => patch<Queue>(queueOf(machine, queue), changes),
  deleteQueue: (machine: string, queue: string) => remove<undefined>(queueOf(machine, queue)),
  purge: (machine: string, queue: string) => remove<undefined>(`${queueOf(machine, queue)}/messages`),
  pauseQueue: (machine: string, queue: string) => post<undefined>(`${queueOf(machine, queue)}/pause`),
  resumeQueue: (machine: string, queue: string) => post<undefined>(`${queueOf(machine, queue)}/resume`),
  access: (machine: string, queue: string, signal?: AbortSignal) =>
    get<Access>(`${queueOf(machine, queue)}/access`, {}, signal),
  changeAccess: (machine: string, queue: string, change: unknown) =>
    post<Access>(`${queueOf(machine, queue)}/access`, change),
  history: (machine: string, queue: string, span: string, signal?: AbortSignal) =>
    get<History>(`${node(machine)}/history`, { queue: [queue], span }, signal),
  messages: (query: Query, signal?: AbortSignal) => get<FoundPage>("messages", query, signal),
  message: (machine: string, queue: string, lookup: string, body: boolean, signal?: AbortSignal) =>
    get<Message>(`${queueOf(machine, queue)}/messages/${part(lookup)}`, { body: body ? "decoded" : "none" }, signal),
  send: (machine: string, queue: string, messages: unknown) =>
    post<unknown>(`${queueOf(machine, queue)}/messages`, messages),
  edit: (machine: string, queue: string, lookup: string, changes: unknown) =>
    post<{ lost: readonly string[]; target: string; to_lookup_identifier: string | null }>(
      `${queueOf(machine, queue)}/messages/${part(lookup)}/edit`,
      changes,
    ),
  after: (machine: string, queue: string, lookup: string, signal?: AbortSignal) =>
    get<{ messages: readonly Message[] }>(`${queueOf(machine, queue)}/messages`, { after: lookup, limit: 1 }, signal),
  exported: (machine: string, query: Query, signal: AbortSignal, onPart: (part: Uint8Array<ArrayBuffer>) => void) =>
    parts(`${node(machine)}/messages/export`, query, signal, onPart),
  importMessages: (machine: string, messages: readonly ImportedMessage[], dry: boolean) =>
    post<{ results: readonly ImportResult[] }>(`${node(machine)}/messages/import`, { messages, dry_run: dry }),
  startJob: (machine: string, job: NewJob) => post<Job>(`${node(machine)}/jobs`, job),
  jobs: (signal?: AbortSignal, query: Query = {}) =>
    get<{ jobs: readonly Job[]; stale: readonly Stale[] }>("jobs", query, signal),
  job: (machine: string, number: number, signal?: AbortSignal) =>
    get<Job>(`${node(machine)}/jobs/${number}`, {}, signal),
  jobLog: (machine: string, number: number, after: number, signal?: AbortSignal) =>
    get<JobLog>(`${node(machine)}/jobs/${number}/log`, { after }, signal),
  controlJob: (machine: string, number: number, action: string) =>
    post<Job>(`${node(machine)}/jobs/${number}`, { action }),
  failures: (query: Query, signal?: AbortSignal) =>
    get<{ groups: readonly FailureGroup[]; scanned: number; stale: readonly Stale[] }>("failures", query, signal),
  explain: (source: string, destination: string, signal?: AbortSignal) =>
    get<Explanation>("routes/explain", { from: source, to: destination }, signal),
  simulate: (down: readonly string[], link: readonly string[], signal?: AbortSignal) =>
    get<Simulation>("routes/simulate", { down, link }, signal),
  keys: (machine: string, signal?: AbortSignal) => get<Keys>(`${node(machine)}/keys`, {}, signal),
  reloadKeys: (machine: string) => post<Keys>(`${node(machine)}/keys/reload`),
  rotation: (machine: string, signal?: AbortSignal) => get<Rotation>(`${node(machine)}/keys/rotation`, {}, signal),
  rotate: (machine: string, action: RotationAction, version: number) =>
    post<RotationRun>(`${node(machine)}/keys/rotation`, { action, version }),
  moving: (signal?: AbortSignal) => get<Moving>("moving", {}, signal),
  plan: (signal?: AbortSignal) => get<Plan>("plan", {}, signal),
  planAtNodes: (signal?: AbortSignal) => get<{ machines: readonly MachinePlan[] }>("plan/nodes", {}, signal),
  audit: (query: Query, signal?: AbortSignal) =>
    get<{ entries: readonly AuditEntry[]; stale: readonly Stale[] }>("audit", query, signal),
};
