/** Documents of the console's API. Those of a node keep the keys of the management API. Times are ISO 8601 in UTC. */

export type Role = "read" | "bodies" | "operate" | "administer";

export interface Session {
  readonly signed_in: boolean;
  readonly name: string;
  readonly roles: readonly Role[];
  readonly csrf: string;
  /** Ways to sign in: token, ldap, oidc. */
  readonly methods: readonly string[];
  readonly enterprise: string;
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
}

export interface Queue {
  readonly machine: string;
  readonly pathname: string;
  readonly format_name: string;
  readonly queue_type: string;
  readonly identifier: string | null;
  // properties: types
  readonly label: string;
  readonly type: string | null;
  readonly transactional: boolean;
  readonly journaling: boolean;
  readonly quota: number | null;
  readonly journal_quota: number | null;
  readonly authentication: boolean;
  readonly privacy_level: string;
  readonly multicast_address: string;
  readonly base_priority: number;
  readonly duplicate_window: number;
  // end of properties
  readonly create_time: string | null;
  readonly modify_time: string | null;
  readonly message_count: number;
  readonly total_bytes: number;
  readonly journal_message_count: number;
  readonly journal_total_bytes: number;
  readonly active: boolean;
  readonly subqueues: readonly string[];
  readonly state: string | null;
  readonly next_hops: readonly string[];
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
  readonly arrived_rate: number | null;
  readonly left_rate: number | null;
  readonly state: string | null;
  readonly as_of: string | null;
}

export interface QueuePage {
  readonly queues: readonly QueueRow[];
  readonly total: number;
  readonly stale: readonly Stale[];
}

export interface Message {
  readonly lookup_identifier: string;
  readonly identifier: string;
  readonly label: string;
  readonly body_size: number;
  readonly base64: string | null;
  readonly text: string | null;
  readonly body_type: number;
  readonly priority: number;
  readonly recoverable: boolean;
  readonly transactional: boolean;
  readonly message_class: string;
  readonly app_specific: number;
  readonly correlation_identifier: string | null;
  readonly sent_time: string | null;
  readonly arrival_time: string | null;
  readonly destination: string;
  readonly administration_queue: string | null;
  readonly response_queue: string | null;
  readonly time_to_reach_queue: number | null;
  readonly time_to_be_received: number | null;
  readonly dead_letter_queue: string | null;
  readonly aborted_receives: number;
  /** Moves as it is between queues of the node; its arrival time is that of before. Older nodes do not tell. */
  readonly moves?: number;
  readonly extension_size: number;
  readonly extension: string | null;
  readonly authenticated: boolean;
  readonly sender: string | null;
  readonly claimed_sender: string | null;
  readonly unreadable: string | null;
  readonly packet: string | null;
  readonly format: string | null;
  readonly decoded: unknown;
  readonly undecoded: string | null;
  readonly headers: Readonly<Record<string, string>> | null;
  readonly headers_format: string | null;
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

export interface Job {
  readonly machine: string;
  readonly job: number;
  readonly kind: string;
  readonly queues: readonly string[];
  readonly selected: number;
  readonly target: string;
  readonly dry_run: boolean;
  readonly undoes: number;
  readonly undone_by: number;
  readonly undoable: boolean;
  readonly asker: string;
  readonly state: string;
  readonly reason: string;
  readonly created: string | null;
  readonly ended: string | null;
  readonly seconds: number;
  readonly total: number;
  readonly scanned: number;
  readonly done: number;
  readonly failed: number;
  readonly rate: number;
  readonly seconds_left: number | null;
}

export interface JobLogEntry {
  readonly queue: string;
  readonly lookup_identifier: string;
  readonly result: string;
  readonly way: string;
  readonly target: string;
  readonly to_lookup_identifier: string | null;
  readonly identifier: string | null;
  readonly name: string | null;
  readonly detail: string | null;
}

export interface JobLog {
  readonly entries: readonly JobLogEntry[];
  readonly next: number | null;
}

export interface NewJob {
  readonly kind: "move" | "copy" | "delete" | "return" | "replay";
  readonly queues: readonly string[];
  readonly where?: readonly string[];
  readonly messages?: readonly string[];
  readonly target?: string;
  readonly transactional?: boolean | null;
  readonly dry_run?: boolean;
}

export interface FailureGroup {
  readonly machine: string;
  readonly reason: string | null;
  readonly queue: string | null;
  readonly sender: string | null;
  readonly exception: string | null;
  readonly queues: readonly string[];
  readonly count: number;
  readonly first: string | null;
  readonly last: string | null;
  readonly last_hour: number;
  readonly hour_before: number;
  readonly where: readonly string[];
}

export interface History {
  readonly step: number;
  readonly times: readonly string[];
  readonly queues: readonly {
    readonly queue: string;
    readonly arrived: readonly number[];
    readonly left: readonly number[];
    readonly died: readonly number[];
    readonly messages: readonly number[];
    readonly bytes: readonly number[];
  }[];
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

export interface Keys {
  readonly version: number;
  readonly fault: string | null;
  readonly fingerprints: readonly string[];
  readonly keys: readonly KeyFacts[];
  readonly certificates: readonly CertificateFacts[];
}

export interface KeyFacts {
  readonly fingerprint: string;
  readonly purpose: "encryption" | "signing";
  readonly provider: string;
  readonly length: number;
  readonly state: "next" | "current" | "previous";
  readonly created: string | null;
  readonly published: string | null;
  readonly superseded: string | null;
}

export type RotationAction = "rotate" | "rollback" | "retire";
export type KeyState = KeyFacts["state"] | "retired" | "destroyed";

export interface RotationStep {
  readonly kind: "make" | "publish" | "keep" | "retire" | "destroy";
  readonly purpose: KeyFacts["purpose"];
  readonly provider: string;
  readonly length: number;
  readonly fingerprint: string | null;
  readonly senders_until: string | null;
  readonly needed_until: string | null;
}

export interface RotationRun {
  readonly action: RotationAction;
  readonly who: string;
  readonly state: "running" | "done" | "failed";
  readonly stage: "making" | "reading" | "publishing";
  readonly begun: string;
  readonly ended: string | null;
  readonly fault: string | null;
  readonly changes: readonly {
    readonly fingerprint: string;
    readonly purpose: KeyFacts["purpose"];
    readonly state: KeyState;
  }[];
}

export interface Rotation {
  readonly permitted: boolean;
  readonly plan: ({ readonly version: number } & Readonly<Record<RotationAction, readonly RotationStep[]>>) | null;
  readonly fault: string | null;
  readonly run: RotationRun | null;
}

export interface CertificateFacts {
  readonly use: "management" | "queue managers";
  readonly subject: string | null;
  readonly begins: string | null;
  readonly ends: string | null;
  readonly fault: string | null;
}

export interface PlanStep {
  readonly action: "create" | "update" | "delete";
  readonly kind: string;
  readonly name: readonly string[];
  readonly before: Readonly<Record<string, unknown>>;
  readonly after: Readonly<Record<string, unknown>>;
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

export interface Access {
  readonly owner: string | null;
  readonly unrestricted: boolean;
  readonly rules: readonly {
    readonly kind: "allow" | "deny";
    readonly trustee: string;
    readonly name: string | null;
    readonly rights: readonly string[];
    readonly inherited: boolean;
    readonly known: boolean | null;
  }[];
  readonly other_entries: number;
}
