// Written by python -m tests.docs.reference.console_types from the documents of the management API.

export interface Access {
  readonly owner: string | null;
  readonly owner_name: string | null;
  readonly unrestricted: boolean;
  readonly rules: readonly AccessRule[];
  readonly other_entries: number;
}

export interface AccessRule {
  readonly kind: "allow" | "deny";
  readonly trustee: string;
  readonly name: string | null;
  readonly rights: readonly string[];
  readonly mask: string;
  readonly inherited: boolean;
  readonly known: boolean | null;
}

export interface BridgeDocument {
  readonly name: string;
  readonly direction: string;
  readonly queue: string;
  readonly peer: string;
  readonly address: string;
  readonly connected: boolean;
  readonly since: number;
  readonly reason: string;
  readonly carried: number;
  readonly repeated: number;
  readonly rejected: number;
  readonly failures: number;
}

export interface CertificateFacts {
  readonly use: CertificateUse;
  readonly subject: string | null;
  readonly begins: string | null;
  readonly ends: string | null;
  readonly fault: string | null;
}

export type CertificateUse = "management" | "queue managers";

export interface Connection {
  readonly address: string;
  readonly state: string;
  readonly incoming: boolean;
  readonly queue_manager_identifier: string | null;
  readonly established: string | null;
  readonly sent_messages: number;
  readonly received_messages: number;
  readonly sent_bytes: number;
  readonly received_bytes: number;
  readonly unacknowledged_messages: number;
  readonly encrypted: boolean;
}

export interface FailoverDocument {
  readonly host: string;
  readonly hosts: readonly string[];
  readonly since: number;
  readonly token: number;
  readonly before: string;
  readonly lease: number;
  readonly lease_left: number;
  readonly renewed_by: string;
  readonly standbys: readonly string[];
  readonly violations: readonly string[];
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
  readonly queues: readonly QueueHistory[];
}

export interface Job {
  readonly machine: string;
  readonly job: number;
  readonly kind: string;
  readonly queues: readonly string[];
  readonly criteria: Readonly<Record<string, unknown>>;
  readonly selected: number;
  readonly target: string;
  readonly transactional: boolean | null;
  readonly dry_run: boolean;
  readonly undoes: number;
  readonly undone_by: number;
  readonly undoable: boolean;
  readonly asker: string;
  readonly channel: string;
  readonly state: string;
  readonly reason: string;
  readonly created: string | null;
  readonly ended: string | null;
  readonly seconds: number;
  readonly place: string;
  readonly total: number;
  readonly scanned: number;
  readonly done: number;
  readonly failed: number;
  readonly rate: number;
  readonly seconds_left: number | null;
}

export interface JobLog {
  readonly entries: readonly JobLogEntry[];
  readonly next: number | null;
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

export interface KeyFacts {
  readonly fingerprint: string;
  readonly purpose: KeyPurpose;
  readonly provider: string;
  readonly length: number;
  readonly state: KeyState;
  readonly created: string | null;
  readonly published: string | null;
  readonly superseded: string | null;
}

export type KeyPurpose = "encryption" | "signing";

export type KeyState = "next" | "current" | "previous" | "retired" | "destroyed";

export interface Keys {
  readonly version: number;
  readonly fault: string | null;
  readonly fingerprints: readonly string[];
  readonly keys: readonly KeyFacts[];
  readonly certificates: readonly CertificateFacts[];
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
  readonly acknowledgements_requested: number;
  readonly journal: boolean;
  readonly dead_letter: boolean;
  readonly tracing: boolean;
  readonly tracing_queue: string | null;
  readonly sent_time: string | null;
  readonly delivery_time: string | null;
  readonly arrival_time: string | null;
  readonly destination: string;
  readonly administration_queue: string | null;
  readonly response_queue: string | null;
  readonly destinations: readonly string[] | null;
  readonly administration_queues: readonly string[] | null;
  readonly response_queues: readonly string[] | null;
  readonly time_to_reach_queue: number | null;
  readonly time_to_be_received: number | null;
  readonly dead_letter_queue: string | null;
  readonly aborted_receives: number;
  readonly next_try: string | null;
  readonly moves: number;
  readonly extension_size: number;
  readonly extension: string | null;
  readonly source_queue_manager: string | null;
  readonly destination_queue_manager: string | null;
  readonly transaction_identifier: number | null;
  readonly first_in_transaction: boolean;
  readonly last_in_transaction: boolean;
  readonly sequence: string | null;
  readonly sequence_number: number | null;
  readonly previous_sequence_number: number | null;
  readonly final_acknowledgment: boolean;
  readonly allow_peek_when_locked: boolean;
  readonly connector_type: string | null;
  readonly connector_queue_manager: string | null;
  readonly soap_header: string | null;
  readonly soap_body: string | null;
  readonly privacy_level: string;
  readonly encryption_algorithm: string | null;
  readonly hash_algorithm: string | null;
  readonly authentication_level: string;
  readonly is_signed: boolean;
  readonly sender_certificate: string | null;
  readonly authentication_provider: string | null;
  readonly authentication_provider_type: number | null;
  readonly sender_queue_manager: string | null;
  readonly authenticated: boolean;
  readonly sender: string | null;
  readonly claimed_sender: string | null;
  readonly unreadable: string | null;
  readonly packet: string | null;
  readonly format: string | null;
  readonly decoded: unknown;
  readonly undecoded: string | null;
  readonly headers: Readonly<Record<string, string | null>> | null;
  readonly headers_format: string | null;
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

export interface NodeDocument {
  readonly computer_name: string;
  readonly identifier: string;
  readonly version: string;
  readonly online: boolean;
  readonly queue_count: number;
  readonly outgoing_queue_count: number;
  readonly message_count: number;
  readonly total_bytes: number;
  readonly dead_letter_count: number;
  readonly transaction_count: number;
  readonly in_doubt_count: number;
  readonly warnings: readonly string[];
  readonly storage_failure: string | null;
  readonly disk_free_bytes: number;
  readonly disk_bytes: number;
  readonly lost_writes: number;
  readonly tls_mode: string | null;
  readonly settings_read: number;
  readonly plain_peers: readonly string[];
  readonly amqp_port: number;
  readonly amqp_connections: number;
  readonly amqp_links: number;
  readonly bridges: readonly BridgeDocument[];
  readonly event_loop: string;
  readonly ready: boolean;
  readonly directory: string;
  readonly routing: Readonly<Record<string, unknown>>;
  readonly local_settings: Readonly<Record<string, unknown>>;
  readonly shares: Readonly<Record<string, ShareDocument>>;
  readonly weakened_security: boolean;
  readonly weakened_security_source: string;
  readonly remote_copy: RemoteCopyDocument | null;
  readonly failover: FailoverDocument | null;
  readonly waiting: readonly WaitingSummary[];
  readonly probes: readonly ProbeDocument[];
  readonly after_restore: Readonly<Record<string, readonly RangeDocument[]>>;
}

export type Privacy = "none" | "optional" | "body";

export interface ProbeDocument {
  readonly name: string;
  readonly queue: string;
  readonly expects: string;
  readonly healthy: boolean | null;
  readonly reason: string;
  readonly sentence: string;
  readonly step: string;
  readonly since: string | null;
  readonly last_success: string | null;
  readonly seconds: number;
  readonly sent: number;
  readonly missed: number;
}

export interface Queue {
  readonly machine: string;
  readonly pathname: string;
  readonly format_name: string;
  readonly queue_type: QueueType;
  readonly identifier: string | null;
  readonly label: string;
  readonly type: string | null;
  readonly transactional: boolean;
  readonly journaling: boolean;
  readonly quota: number | null;
  readonly journal_quota: number | null;
  readonly authentication: boolean;
  readonly privacy_level: Privacy;
  readonly multicast_address: string;
  readonly base_priority: number;
  readonly duplicate_window: number;
  readonly declared: boolean;
  readonly max_deliveries: number;
  readonly retry_pause: number;
  readonly retry_factor: number;
  readonly retry_longest_pause: number;
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
  readonly reason: string | null;
  readonly waiting: WaitingDocument | null;
  readonly oldest_arrival: string | null;
  readonly journal_oldest_arrival: string | null;
}

export interface QueueHistory {
  readonly queue: string;
  readonly arrived: readonly number[];
  readonly left: readonly number[];
  readonly died: readonly number[];
  readonly messages: readonly number[];
  readonly bytes: readonly number[];
}

export type QueueType = "private" | "public" | "system" | "connector" | "outgoing";

export interface Quotas {
  readonly quota: number | null;
  readonly quota_used: number;
  readonly journal_quota: number | null;
  readonly journal_quota_used: number;
  readonly throttled: boolean;
  readonly journal_copies_dropped: number;
  readonly quota_source: string;
  readonly journal_quota_source: string;
  readonly default_time_to_live: number;
  readonly default_time_to_live_source: string;
  readonly quota_settings: Readonly<Record<string, number | null>>;
}

export interface RangeDocument {
  readonly peer: string;
  readonly queue: string;
  readonly sequence: string;
  readonly first: number;
  readonly last: number;
  readonly state: string;
}

export interface RemoteCopyDocument {
  readonly to: string;
  readonly lag_seconds: number;
  readonly lag_bytes: number;
  readonly moment: number;
  readonly base: number;
  readonly failure: string;
}

export interface Rotation {
  readonly permitted: boolean;
  readonly plan: RotationPlan | null;
  readonly fault: string | null;
  readonly run: RotationRun | null;
}

export type RotationAction = "rotate" | "rollback" | "retire";

export interface RotationChange {
  readonly fingerprint: string;
  readonly purpose: KeyPurpose;
  readonly state: KeyState;
}

export interface RotationPlan {
  readonly version: number;
  readonly rotate: readonly RotationStep[];
  readonly rollback: readonly RotationStep[];
  readonly retire: readonly RotationStep[];
}

export interface RotationRun {
  readonly action: RotationAction;
  readonly who: string;
  readonly state: RunState;
  readonly stage: RotationStage;
  readonly begun: string | null;
  readonly ended: string | null;
  readonly fault: string | null;
  readonly changes: readonly RotationChange[];
}

export type RotationStage = "making" | "reading" | "publishing";

export interface RotationStep {
  readonly kind: StepKind;
  readonly purpose: KeyPurpose;
  readonly provider: string;
  readonly length: number;
  readonly fingerprint: string | null;
  readonly senders_until: string | null;
  readonly needed_until: string | null;
}

export type RunState = "running" | "done" | "failed";

export interface ShareDocument {
  readonly unit: string;
  readonly total: number;
  readonly reserve: number;
  readonly used: Readonly<Record<string, number>>;
  readonly refused: Readonly<Record<string, number>>;
}

export type StepKind = "make" | "publish" | "keep" | "retire" | "destroy";

export type WaitReason =
  | "no_route"
  | "gate_down"
  | "host_down"
  | "refused"
  | "no_name"
  | "directory"
  | "key"
  | "certificate"
  | "access"
  | "quota"
  | "paused"
  | "offline"
  | "window"
  | "disk"
  | "delayed"
  | "receiver";

export interface WaitingDocument {
  readonly reason: WaitReason;
  readonly sentence: string;
  readonly queue: string;
  readonly machine: string;
  readonly since: string | null;
  readonly next_try: string | null;
  readonly messages: number;
  readonly step: string;
}

export interface WaitingSummary {
  readonly reason: WaitReason;
  readonly machine: string;
  readonly sentence: string;
  readonly since: number;
  readonly next_try: number;
  readonly step: string;
  readonly queues: number;
  readonly messages: number;
}
