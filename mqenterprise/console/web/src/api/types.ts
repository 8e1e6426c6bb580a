/** Documents of the console's API. Those of a node keep the keys of the management API. Times are ISO 8601 in UTC. */

import type { Place } from "../map/model";
import type { Message, WaitingDocument } from "./documents";

export type * from "./documents";

export type Role = "read" | "bodies" | "operate" | "administer";

export interface Session {
  readonly signed_in: boolean;
  readonly name: string;
  readonly roles: readonly Role[];
  readonly csrf: string;
  /** Ways to sign in: token, ldap, oidc. */
  readonly methods: readonly string[];
  readonly enterprise: string;
  /** Why the session of this browser has ended, in a sentence; empty if there was none. */
  readonly reason: string;
  /** What this console can do: a node alone has no keys, plan or routes. */
  readonly features: readonly string[];
}

export type Health = "up" | "trouble" | "down" | "unknown";

export interface NodeState {
  readonly machine: string;
  /** Of the queue manager; null until the node has answered. */
  readonly identifier: string | null;
  readonly site: string;
  readonly state: Health;
  readonly reason: string;
  /** When the node last answered. */
  readonly as_of: string | null;
  readonly gate: boolean;
  readonly routing_server: boolean;
  readonly version: string | null;
  readonly message_count: number | null;
  readonly queue_count: number | null;
  readonly dead_letter_count: number | null;
  readonly arrived_rate: number | null;
  readonly left_rate: number | null;
  readonly warnings: readonly string[];
  readonly bridges: readonly BridgeState[];
}

/** A bridge of a node to an AMQP peer. Counts are since the start of the node. */
export interface BridgeState {
  readonly name: string;
  readonly direction: string;
  readonly queue: string;
  readonly peer: string;
  readonly address: string;
  readonly connected: boolean;
  /** When it was connected, or lost the connection. */
  readonly since: string | null;
  readonly reason: string;
  readonly carried: number | null;
  readonly repeated: number | null;
  readonly rejected: number | null;
  readonly failures: number | null;
}

export interface Site {
  readonly name: string;
  readonly foreign: boolean;
}

export interface LinkState {
  readonly first: string;
  readonly second: string;
  readonly cost: number;
  readonly gates: readonly string[];
  readonly state: Health;
  readonly reason: string;
  /** Messages that crossed it a second, and those that wait to; null as long as no node at its ends has answered. */
  readonly rate: number | null;
  readonly waiting: number | null;
}

export interface Overview {
  readonly sites: readonly Site[];
  readonly nodes: readonly NodeState[];
  readonly links: readonly LinkState[];
  /** When the directory was read; why it could not be read again since. */
  readonly directory: { readonly as_of: string | null; readonly reason: string };
}

/** A node whose part of an answer is old or missing. */
export interface Stale {
  readonly machine: string;
  readonly reason: string;
  readonly as_of: string | null;
  /** It answers, and refuses what was asked. */
  readonly refused?: boolean;
}

export interface QueueRow {
  readonly machine: string;
  readonly site: string;
  readonly pathname: string;
  readonly queue_type: string;
  readonly label: string;
  readonly transactional: boolean;
  readonly message_count: number;
  readonly total_bytes: number;
  /** When the message that has waited longest arrived. */
  readonly oldest_arrival: string | null;
  readonly arrived_rate: number | null;
  readonly left_rate: number | null;
  readonly state: string | null;
  /** Where the messages of an outgoing queue go, by names; empty if the format name says as much. */
  readonly destination: string;
  readonly as_of: string | null;
}

export interface QueuePage {
  readonly queues: readonly QueueRow[];
  readonly total: number;
  readonly stale: readonly Stale[];
}

export interface Found {
  readonly machine: string;
  readonly queue: string;
  readonly message: Message;
}

export interface FoundPage {
  readonly found: readonly Found[];
  readonly scanned: number;
  readonly total: number;
  readonly next: string | null;
  readonly refused: readonly string[];
  readonly stale: readonly Stale[];
}

/** Why messages wait, and at which node. */
export interface WaitingRow extends WaitingDocument {
  readonly at: string;
  readonly destination: string;
}

/** A line of an export, as it is sent to a queue again. */
export interface ImportedMessage {
  readonly packet: string;
  readonly target: string;
  readonly dead_letter: boolean;
}

export interface ImportResult {
  readonly result: string;
  readonly detail: string | null;
}

export interface Hop {
  readonly machine: string;
  readonly sites: readonly string[];
  readonly next: string | null;
  readonly section: string;
  readonly considered: readonly { readonly rule: string; readonly applies: boolean; readonly why: string }[];
  readonly link: readonly string[] | null;
  readonly cost_without_link: number | null;
  readonly alternatives: readonly string[];
  readonly problem: string | null;
}

export interface MovingMachine {
  readonly name: string;
  readonly site: string;
  readonly place: Place;
  readonly queues: number;
  /** How many of them are at a node. */
  readonly moved: number;
  readonly messages: number;
  /** Why the survey could not ask it. */
  readonly reason: string;
}

export interface MovingStep {
  readonly position: number;
  readonly what: "queue" | "machine" | "later";
  readonly name: string;
  readonly place: Place;
  readonly queues: readonly {
    readonly path: string;
    readonly place: Place;
    /** The node; empty if the queue has not begun to move. */
    readonly target: string;
    readonly note: string;
  }[];
  readonly reasons: readonly string[];
}

/** How far an estate is on its way from Windows to nodes. */
export interface Moving {
  /** When the survey was taken. */
  readonly taken: string;
  readonly queues: Readonly<Record<Place, number>>;
  readonly machines: readonly MovingMachine[];
  /** The survey's order of moves. */
  readonly order: readonly MovingStep[];
  /** What could not be read. */
  readonly unread: readonly string[];
  /** Whether the person may not see carries. */
  readonly without_carries: boolean;
}

export interface Explanation {
  readonly path: readonly string[];
  readonly hops: readonly Hop[];
  readonly arrives: boolean;
  readonly cost: number;
}

export interface Way {
  readonly path: readonly string[];
  readonly cost: number;
  readonly problem: string | null;
}

export interface Journey {
  readonly from: string;
  readonly to: string;
  readonly before: Way;
  readonly after: Way;
}

export interface Simulation {
  readonly journeys: number;
  readonly of: string;
  readonly changed: readonly Journey[];
  readonly waiting: readonly Journey[];
  readonly cut_off: readonly string[];
  readonly gates: readonly {
    readonly gate: string;
    readonly before: number;
    readonly after: number;
    readonly overloaded: boolean;
  }[];
}

export interface PlanStep {
  readonly action: "create" | "update" | "delete";
  readonly kind: string;
  readonly name: readonly string[];
  readonly before: Readonly<Record<string, unknown>>;
  readonly after: Readonly<Record<string, unknown>>;
}

/** What the document of a machine would change at its node, or why that is not known. */
export interface MachinePlan {
  readonly machine: string;
  readonly error: string | null;
  readonly left_over?: readonly string[];
  readonly steps?: readonly {
    readonly action: "create" | "change" | "delete" | "keep";
    readonly queue: string;
    readonly bridge: string;
    readonly changes: Readonly<Record<string, { readonly from: unknown; readonly to: unknown }>>;
  }[];
}

export interface Plan {
  readonly directory: string;
  readonly steps: readonly PlanStep[];
  readonly remarks: readonly { readonly note: string; readonly name: string }[];
}

export interface AuditEntry {
  readonly machine: string;
  readonly time: string;
  readonly who: string | null;
  readonly channel: string;
  readonly action: string;
  readonly target: Readonly<Record<string, string>>;
  readonly details: Readonly<Record<string, unknown>>;
  readonly outcome: string;
  readonly problem: string | null;
  readonly from?: string | null;
  readonly status?: number;
}
