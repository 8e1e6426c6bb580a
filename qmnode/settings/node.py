"""The settings of a node: each default with its section, or its reason."""

import re
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from qmnode.bodies.limits import DEFAULT_LIMITS, Limits
from qmnode.errors import ConfigurationError as ConfigurationError
from qmnode.settings.amqp import AmqpSettings
from qmnode.settings.bridges import BridgeName, BridgeSettings
from qmnode.settings.environment import with_environment
from qmnode.settings.mistakes import explained, unreadable
from qmnode.settings.probes import ProbeName, ProbeSettings
from qmnode.settings.protocol import SessionSettings, TransferSettings
from qmnode.settings.remote_read import RemoteReadSettings
from qmnode.settings.security import SecuritySettings
from qmnode.settings.units import Bytes, Quota
from qmnode.settings.yaml_text import read_yaml

_KIB = 1024
_MIB = 1024 * _KIB


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RemoteCopySettings(_Settings):
    """A copy of the store elsewhere, made while the node runs (docs/operations.md)."""

    to: str = ""
    """An absolute folder, best of another site, or ``s3://bucket/prefix``, for this node alone. Empty: no copy."""
    key: Path | None = None
    """File with the passphrase that encrypts the copy, mode 0600. Keep it elsewhere too: no restore without it."""
    lag: float = Field(default=10.0, ge=0.5, le=3600)
    """Seconds that the copy may be behind; it is written twice as often."""
    keep: float = Field(default=7200.0, ge=60)
    """Seconds for which each moment can be restored."""
    base: float = Field(default=1800.0, ge=5)
    """Seconds between two bases: lists of all files of the store, of which only new ones are written."""
    backlog: Bytes = Field(default=512 * _MIB, ge=_MIB)
    """Bytes of the store's disk for what an unavailable target has not got. When full, the copy has a gap."""

    @model_validator(mode="after")
    def _is_encrypted(self) -> Self:
        if self.to and self.key is None:
            raise ValueError(
                "storage.remote_copy.to is set without storage.remote_copy.key: the copy holds bodies, and is not "
                "written in clear; name a file with a passphrase"
            )
        return self


class StorageSettings(_Settings):
    """The behaviour of the RocksDB store."""

    sync: Literal["inline", "thread"] = "inline"
    """Where the shared write is synced: in the event loop itself, which is faster on a disk that syncs in under a
    millisecond, or in a thread, which keeps the loop free on a slower disk.
    """
    express_memory: Bytes = Field(default=32 * _MIB, ge=_MIB)
    """Bytes of express messages kept in memory before others spill to files that no restart reads."""
    write_buffer: Bytes = Field(default=32 * _MIB, ge=_MIB)
    """Bytes of each of at most three buffers of recoverable messages in memory. Two full ones go together from the log
    to sorted files, without what came and went in them. At most 1/64 of the disk, and not under 256 KiB.
    """
    block_cache: Bytes = Field(default=32 * _MIB, ge=_MIB)
    log_limit: Bytes = Field(default=128 * _MIB, ge=_MIB)
    """Bytes of write-ahead log. A restart after a crash replays at most this much, or what the write buffers hold. At
    most 1/16 of the disk, and not under 1 MiB.
    """
    low_space: Bytes = Field(default=256 * _MIB, ge=0)
    """Free bytes of the disk below which the node warns. Without room for a write, it accepts nothing. On a disk of
    less than 1 GiB a twelfth is kept, as the file ``.reserve``, to open the store and receive messages when it is full.
    """
    identifier_block: int = Field(default=65536, ge=1)
    """Message identifiers reserved on disk at a time. A crash skips the rest of a block."""
    remote_copy: RemoteCopySettings = RemoteCopySettings()


class QuotaSettings(_Settings):
    """Limits on the messages that the queue manager stores: numbers of KB, or sizes with a unit."""

    # MS-MQDMPR 3.1.1.1 says bytes, but a node with 1 MiB would be full after a thousand messages; Windows counts KB.
    queue_manager_quota: Quota = 0x00100000
    """QueueManagerQuota, 3.1.1.1: all messages of all queues, 1 GiB by default. 0xFFFFFFFF means no limit."""
    journal_quota: Quota = 0xFFFFFFFF
    """JournalQuota, 3.1.1.1: all messages of all journals."""
    source: Literal["directory", "local"] = "directory"
    """Quotas of the machine that win: those that the directory declares for it, or the two above. A value that equals
    the default is not declared.
    """
    notices: Quota = 0x00040000
    """Waiting acknowledgments and trace reports: 256 MiB, at most a quarter of QueueManagerQuota. An extension."""
    notices_per_neighbour: Quota = 0x00004000
    """The part of them that one neighbour causes: 16 MiB, at most 1/32 of QueueManagerQuota. An extension."""
    outgoing_queues: int = Field(default=10_000, ge=0)
    """Outgoing and connector queues, each created on the first message to it. An extension. Messages from elsewhere,
    which pass or want answers, create at most half of them: three eighths for a declared neighbour, one in 20 for a
    stranger, and one in four for all strangers.
    """
    queues_per_user: int = Field(default=1_000, ge=1)
    """Private and public queues of one user who is no administrator. An extension."""
    subqueues: int = Field(default=1_000, ge=1)
    """Subqueues of one queue, which every sender to it may make. An extension."""
    message_ids: int = Field(default=1_000_000, ge=1_000)
    """Message ids that one queue remembers to detect duplicates; at the limit it forgets the oldest. An extension."""


class PoisonSettings(_Settings):
    """The handling of a message whose receiving transactions keep aborting."""

    aborts: int = Field(default=0, ge=0, le=255)
    """Aborted receives after which a message is moved away. 0, as specified, leaves it at the head for ever."""
    target: Literal["subqueue", "dead-letter"] = "subqueue"
    """The place it is moved to: the queue's ``poison`` subqueue, or the transactional dead-letter queue."""


class ReadAheadSettings(_Settings):
    """The part of a queue that is kept in memory while it has readers."""

    messages: int = Field(default=256, ge=1)
    """Messages read from the store at a time."""
    queue_bytes: Bytes = Field(default=1 * _MIB, ge=1)
    """Bytes that one queue may keep."""
    total_bytes: Bytes = Field(default=48 * _MIB, ge=1)
    """Bytes that all queues together may keep."""


class TransportSettings(_Settings):
    """Connections to other queue managers: MS-MQQB 2.1. Durations are in seconds."""

    enabled: bool = True
    """Whether the node connects to other queue managers at all."""
    address: str = ""
    """The IP address to listen on and to connect from; empty means every address of the machine. Order acknowledgments
    go to the address that messages came from, so nodes that share a machine need one each.
    """
    port: int = Field(default=1801, ge=1, le=0xFFFF)
    """The TCP port, 2.1.1. Format names carry no port, so all nodes of an enterprise use the same."""
    ping: bool = False
    """Whether to ping before connecting, 3.1.5.2.2."""
    ping_port: int = Field(default=3527, ge=1, le=0xFFFF)
    """The UDP port of pings, 2.1.2."""
    sessions: int = Field(default=2_000, ge=1)
    """Incoming connections to this node. At the limit silent ones make room, then idle ones of the largest block."""
    sessions_per_peer: int = Field(default=200, ge=1)
    """Incoming connections from one IPv4 address or IPv6 /64. A queue manager has one for each outgoing queue."""
    incomplete_bytes: Bytes = Field(default=64 * _MIB, ge=_MIB)
    """Bytes that all connections hold in memory: of incomplete packets, and of messages that wait for a verification,
    for the directory or for the disk. Half is for declared peers. A peer over its share is not read for a while.
    """


class ExportSettings(_Settings):
    """Events for the data pipeline, as Parquet segments; needs the extra ``export``. Messages never wait for it."""

    target: str = ""
    """A directory, or ``s3://bucket/prefix``. Empty records no events."""
    roll_seconds: float = Field(default=60.0, gt=0)
    """A segment covers the events of this many seconds, or 32 MiB of recorded events."""
    backlog_bytes: Bytes = Field(default=512 * _MIB, ge=4096)
    """Bytes of events that wait in the store for an unavailable target. When full, more are counted and discarded."""
    directory_bytes: Bytes = Field(default=10 * 1024 * _MIB, ge=0)
    """Bytes of this node's segments in a directory, of which the oldest are deleted; 0: no limit. Not for buckets."""
    labels: bool = True
    """Whether the labels of messages are exported."""
    site: str = ""
    """Name of the node's site, to override the directory's."""


class TelemetrySettings(_Settings):
    """Spans and metrics for an OpenTelemetry collector; needs the extra ``otel``. Messages never wait for it."""

    endpoint: str = ""
    """Where the collector takes OTLP over HTTP, such as ``http://127.0.0.1:4318``. Empty exports nothing."""
    sampling: float = Field(default=0.01, ge=0, le=1)
    """The share of messages without a trace context that have spans: the same at all nodes. Of others, the program that
    sent them decides."""
    metrics_seconds: float = Field(default=60.0, ge=0)
    """Seconds between two exports of the metrics; 0: none."""


class BodySettings(_Settings):
    """The cost limits for decoding one body, wherever bodies are shown. Beyond them: its bytes, and why."""

    nodes: int = Field(default=DEFAULT_LIMITS.nodes, ge=1, le=10_000_000)
    """The most values, elements and attributes."""
    depth: int = Field(default=DEFAULT_LIMITS.depth, ge=1, le=100)
    """The deepest nesting of values."""
    octets: Bytes = Field(default=DEFAULT_LIMITS.octets, ge=1, le=64 * _MIB)
    """Bytes of the body, and of texts and byte strings in the result."""

    def limits(self) -> Limits:
        """The limits in the decoders' form."""
        return Limits(self.nodes, self.depth, self.octets)


def computer_name_fault(name: str) -> str | None:
    """Why a computer cannot have this name, or None."""
    if name.casefold().removesuffix(".") == "localhost" or re.fullmatch(r"[\d.]+", name):
        return f"{name!r:.80} is no name of a computer: it means another one to others, or is an address"
    if re.fullmatch(r"[\w-][\w.-]{0,62}", name):
        return None
    return f"{name!r:.80} is no name of a computer: use up to 63 letters, digits, hyphens and underscores"


class TraceRule(_Settings):
    """Messages that the node sends as traced ones."""

    queue: str = Field(default="*", max_length=512)
    """Pattern, with ``*`` and ``?``, for the path name of a queue here, or the format name of one elsewhere."""
    label: str = Field(default="*", max_length=512)
    """Pattern for the label of the message."""
    one_in: int = Field(default=1, ge=1)
    """Trace the first of so many messages that fit."""


class TracingSettings(_Settings):
    """Traced messages: every queue manager on the way sends a report (MS-MQQB 3.1.5.8.9). Settings are read when a
    queue is opened; they change with a restart.
    """

    report_queue: str = ""
    """The public queue that gets the reports, as ``PUBLIC=`` and its GUID, of messages that name no other queue."""
    rules: tuple[TraceRule, ...] = Field(default=(), max_length=100)
    """Messages sent by applications of this node that are traced though they do not ask for it; the first rule that
    fits counts. A signed message is not traced by a rule.
    """

    @field_validator("report_queue")
    @classmethod
    def _is_public(cls, name: str) -> str:
        if name and not re.fullmatch(r"PUBLIC=[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", name, re.IGNORECASE):
            raise ValueError("reports go to a public queue: write PUBLIC= and its GUID, as `qmnode queue show` does")
        return name

    @model_validator(mode="after")
    def _has_a_queue(self) -> Self:
        if self.rules and not self.report_queue:
            raise ValueError("rules need report_queue: without it nobody reports")
        return self


class Settings(_Settings):
    """All settings of a queue manager node."""

    computer_name: str = ""
    """ComputerName, MS-MQDMPR 3.1.1.1. If empty, the host's name up to the first dot, in upper case."""
    other_names: tuple[str, ...] = ()
    """Further names of this computer in format names: its qualified name, aliases."""
    addresses: tuple[str, ...] = ()
    """IP addresses of this computer, beside the loopback ones, for DIRECT=TCP names."""
    storage: StorageSettings = StorageSettings()
    quotas: QuotaSettings = QuotaSettings()
    poison: PoisonSettings = PoisonSettings()
    read_ahead: ReadAheadSettings = ReadAheadSettings()
    security: SecuritySettings = SecuritySettings()
    session: SessionSettings = SessionSettings()
    transfer: TransferSettings = TransferSettings()
    transport: TransportSettings = TransportSettings()
    remote_read: RemoteReadSettings = RemoteReadSettings()
    hardened_security: bool = False
    """HardenedSecurity, MS-MQDMPR 3.1.1.1: the node answers and makes no remote procedure calls, and has no sessions
    with other queue managers. Takes effect at the next start.
    """
    export: ExportSettings = ExportSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    bodies: BodySettings = BodySettings()
    tracing: TracingSettings = TracingSettings()

    @field_validator("computer_name")
    @classmethod
    def _is_a_computer(cls, name: str) -> str:
        if name and (fault := computer_name_fault(name)):
            raise ValueError(fault)
        return name


class LocalSettings(_Settings):
    """The socket through which local applications reach the node."""

    socket: Path = Path("/run/qmnode/qmnode.sock")
    mode: int = Field(default=0o660, ge=0, le=0o777)
    """Permissions of the socket, as a number: 432 is 0o660, owner and group."""
    connections: int = Field(default=1_000, ge=1)
    """The most applications connected at a time; of one user half as many. Those of root are counted apart."""
    greeting_time: float = Field(default=10.0, gt=0)
    """Seconds until an application has to have sent its first frame, or its connection ends."""
    handles: int = Field(default=10_000, ge=1)
    """Queues, cursors and transactions that one application may have open."""


class KeyRotationSettings(_Settings):
    """Rotations of this node's own keys through the management API (docs/keys.md). Times are in seconds and have the
    meaning, and should have the values, that ``keys.yaml`` of ``mqenterprise keys`` gives them.
    """

    enabled: bool = False
    """Whether callers with the role `administer` may rotate the keys of this node. Needs a directory."""
    directory: Path | None = None
    """Settings of the directory with the account that publishes the keys: a file as for ``mqenterprise --directory``.
    By default the node's own account, which may publish its own keys if ``mqenterprise directory admit`` made it."""
    modulus_length: int | None = Field(default=None, ge=1_024, le=16_384)
    """Bits of new keys; the provider's default if not set."""
    replication_delay: float = Field(default=14_400.0, ge=0)
    """The longest time for which a replica of the directory may show a replaced key."""
    offline_cache_age: float = Field(default=86_400.0, ge=0)
    """The longest time for which other nodes use keys that they have read while their directory is unavailable: at
    least their ``directory.settings.keys_for``."""
    destroy_after: float = Field(default=86_400.0, ge=0)
    """The time for which a retired key can be brought back."""
    maximum_age: float = Field(default=31_536_000.0, gt=0)
    """The age at which a published key is due for replacement."""


class ManagementSettings(_Settings):
    """The management API. The Unix socket needs no token: ``security.administrators`` may do everything there, other
    users that may open it what the access list of each queue allows."""

    socket: Path | None = Path("/run/qmnode/management.sock")
    mode: int = Field(default=0o600, ge=0, le=0o777)
    listen: str | None = None
    """Address and port for TCP, ``10.1.2.3:8443`` or ``[::1]:8443``. Needs tokens and a certificate."""
    tokens: Path | None = None
    """YAML file of bearer tokens: a list of ``name``, ``role`` (read, bodies, operate or administer) and ``sha256`` of
    the token."""
    consoles: Path | None = None
    """YAML file of consoles that sign people in elsewhere: a list of ``name``, ``public_key`` (Ed25519, PEM) and
    ``roles``, from the groups of people to read, bodies, operate or administer."""
    certificate: Path | None = None
    """PEM file with the certificate chain of the TCP side."""
    private_key: Path | None = None
    audit_log: Path | None = None
    """File to which every change is appended, one JSON object per line. None writes them to the log of the node."""
    console: bool = False
    """Whether the TCP side also serves the console of this node to browsers."""
    console_hosts: list[str] = []
    """More names under which browsers may know this node, beside its computer name and its address."""
    key_rotation: KeyRotationSettings = KeyRotationSettings()
    request_size: Bytes = Field(default=16 * _MIB, ge=1024)
    """The largest request in bytes, and the most bytes of bodies in an answer."""
    batch: int = Field(default=1000, ge=1, le=100_000)
    """The most messages of a request, or queues of a list."""
    waiting_receives: int = Field(default=64, ge=0)
    """The most requests that wait for a message at a time."""
    longest_wait: float = Field(default=60.0, ge=0)
    """Seconds that a request may wait for a message; longer requests are reduced to this."""
    connections: int = Field(default=256, ge=1)
    """Connections to the Unix socket, and as many over TCP, at a time. When all are taken, one without a request ends
    for a new one."""
    connections_per_address: int = Field(default=64, ge=1)
    """Those of one IPv4 address, one /64 network of IPv6, or one user of this machine."""
    head_time: float = Field(default=10.0, gt=0)
    """Seconds for a TLS handshake, and for the head of each request."""
    metrics_queues: int = Field(default=200, ge=0)
    """Queues with metrics of their own, the fullest first. The others are only in the totals."""

    @model_validator(mode="after")
    def _tcp_is_protected(self) -> Self:
        if self.listen is not None:
            missing = [name for name in ("tokens", "certificate", "private_key") if getattr(self, name) is None]
            if missing:
                raise ValueError(f"management.listen opens the API to the network: it needs {', '.join(missing)} too")
        return self


class LogSettings(_Settings):
    """The log of the node, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "console"] = "json"


class DirectoryMembershipSettings(_Settings):
    """The directory that the node belongs to. Without a name it runs in workgroup mode."""

    name: str | None = None
    """The name of an installed directory: ``ldap`` comes with the extra ``enterprise``."""
    settings: dict[str, Any] = {}
    """That directory's own settings; for ``ldap``: ``file``, which ``mqenterprise directory admit`` wrote."""
    online_check: float = Field(default=60.0, gt=0)
    """Seconds of the Directory Online Timer (MS-MQDMPR 3.1.2.5)."""
    notification_interval: float = Field(default=60.0, ge=1)
    """Least time in seconds between two readings of the directory that change notifications cause (MS-MQCN 5.1)."""


class FailoverSettings(_Settings):
    """A queue manager that one of several hosts runs at a time (docs/failover.md). Takes effect at the next start."""

    hosts: tuple[str, ...] = ()
    """The hosts that may run it, by host name. Its store moves between them: on none of them it is a copy."""
    lease: float = Field(default=10.0, ge=1, le=3600)
    """Seconds of boot time (CLOCK_BOOTTIME) for which one renewal lets the node be active. The kernel kills it then."""
    lease_file: Path | None = None
    """File in memory, of which the cluster manager writes the first line anew: the boot identifier, and the second of
    boot time until which this host may be active. None: the node renews its lease itself, so it ends pauses only."""
    ledger: Path | None = None
    """File of this host's own disk for the tokens that it took, to find out later that two hosts were active at once.
    """
    device: Path | None = None
    """Block device of the store, which ``qmnode run --check`` reads as root on a host that stands by."""
    standbys: Path | None = None
    """File with a line about each host that stands by, which its last check left. A ``lease_file`` has its own."""

    @model_validator(mode="after")
    def _has_hosts(self) -> Self:
        names = [host.partition(".")[0].casefold() for host in self.hosts]
        if len(set(names)) < len(names):
            raise ValueError("failover.hosts has one host twice")
        paths = ("lease_file", "ledger", "device", "standbys")
        if not self.hosts and any(getattr(self, name) for name in paths):
            raise ValueError(f"failover has {' or '.join(paths)} and no hosts: name the hosts that may run the node")
        for name in paths:
            path = getattr(self, name)
            if path is not None and not path.is_absolute():
                raise ValueError(f"failover.{name} is {str(path)!r}: give an absolute path")
        return self


class NodeSettings(Settings):
    """All settings of ``qmnode run``: from a YAML file, and from the environment, which takes precedence.

    The variable of a setting is its path in upper case, with the prefix ``QMNODE_`` and two underscores as separator:
    ``QMNODE_STORAGE__SYNC=thread``.
    """

    data: Path = Path("/var/lib/qmnode")
    """Directory of the message store."""
    local: LocalSettings = LocalSettings()
    management: ManagementSettings = ManagementSettings()
    amqp: AmqpSettings = AmqpSettings()
    bridges: dict[BridgeName, BridgeSettings] = {}
    """Bridges between queues of this node and AMQP 1.0 peers, by name (docs/bridges.md); need the extra ``amqp``."""
    probes: dict[ProbeName, ProbeSettings] = Field(default={}, max_length=100)
    """Heartbeats through applications, by name (docs/management.md)."""
    log: LogSettings = LogSettings()
    directory: DirectoryMembershipSettings = DirectoryMembershipSettings()
    failover: FailoverSettings = FailoverSettings()

    @model_validator(mode="after")
    def _keys_are_published_somewhere(self) -> Self:
        if self.management.key_rotation.enabled and self.directory.name is None:
            raise ValueError(
                "management.key_rotation.enabled needs a directory, where keys are published: set directory.name"
            )
        return self

    @model_validator(mode="after")
    def _probes_are_reported(self) -> Self:
        for name, probe in self.probes.items():
            if probe.links and not self.tracing.report_queue:
                raise ValueError(f"probes.{name}.links needs tracing.report_queue: the reports show the links")
        return self


def read_settings(path: Path | None) -> NodeSettings:
    """The settings in a YAML file, or the defaults, overridden by the environment. Raises ConfigurationError."""
    values: Any = {}
    if path is not None:
        try:
            values = read_yaml(path.read_text(encoding="utf-8")) or {}
        except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
            raise ConfigurationError(unreadable(path, error)) from error
        if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
            raise ConfigurationError(f"{path}: expected settings by name, such as 'data: /var/lib/qmnode'")
    try:
        return NodeSettings(**with_environment(NodeSettings, values))
    except (ValidationError, ConfigurationError) as error:
        raise ConfigurationError(explained(path, NodeSettings, error)) from error
