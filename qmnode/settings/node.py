"""The settings of a node: each default with the section it comes from, or the reason for it."""

from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from qmnode.bodies.limits import DEFAULT_LIMITS, Limits
from qmnode.errors import ConfigurationError as ConfigurationError
from qmnode.settings.amqp import AmqpSettings
from qmnode.settings.environment import with_environment
from qmnode.settings.mistakes import explained, unreadable
from qmnode.settings.protocol import SessionSettings, TransferSettings
from qmnode.settings.remote_read import RemoteReadSettings
from qmnode.settings.security import SecuritySettings
from qmnode.settings.units import Bytes, Quota

_KIB = 1024
_MIB = 1024 * _KIB


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StorageSettings(_Settings):
    """How the store in RocksDB behaves."""

    sync: Literal["inline", "thread"] = "inline"
    """Who syncs the shared write: the event loop itself, which is faster on a disk that syncs in under a
    millisecond, or one thread, which keeps the loop free on a slower one."""
    express_memory: Bytes = Field(default=32 * _MIB, ge=_MIB)
    """Bytes of express messages kept in memory before others spill to files that no restart reads."""
    write_buffer: Bytes = Field(default=32 * _MIB, ge=_MIB)
    """Bytes of recoverable messages in memory before they go from the log to sorted files."""
    block_cache: Bytes = Field(default=32 * _MIB, ge=_MIB)
    log_limit: Bytes = Field(default=128 * _MIB, ge=_MIB)
    """Bytes of write-ahead log. A restart after a crash replays at most this much."""
    low_space: Bytes = Field(default=256 * _MIB, ge=0)
    """Free bytes of the disk below which the node warns. When a write finds no room, it takes nothing until there is
    some."""
    identifier_block: int = Field(default=65536, ge=1)
    """Message identifiers reserved on disk at a time. A crash skips what is left of a block."""
    identifier_jump: int = Field(default=1 << 24, ge=1)
    """Message identifiers that a restored or copied store skips, so that it never gives out one again."""


class QuotaSettings(_Settings):
    """Limits on what the queue manager stores: numbers of KB, or sizes with a unit."""

    # MS-MQDMPR 3.1.1.1 says bytes, but a node with 1 MiB would be full after a thousand messages; Windows counts KB.
    queue_manager_quota: Quota = 0x00100000
    """QueueManagerQuota, 3.1.1.1: all messages of all queues, 1 GiB by default. 0xFFFFFFFF is no limit."""
    journal_quota: Quota = 0xFFFFFFFF
    """JournalQuota, 3.1.1.1: all messages of all journals."""
    notices: Quota = 0x00040000
    """Acknowledgments and trace reports that wait, which messages from elsewhere cause: 256 MiB, and a quarter of
    QueueManagerQuota at most. An extension."""
    notices_per_neighbour: Quota = 0x00004000
    """Those that one neighbour causes: 16 MiB, and a thirty-second of QueueManagerQuota at most. An extension."""
    outgoing_queues: int = Field(default=10_000, ge=0)
    """Outgoing and connector queues, each of which is made when somebody first sends to it. An extension. Messages from
    elsewhere, which name queues for their acknowledgments, make half of them at most. Messages that pass make half of
    them for a declared neighbour, one in 16 for a stranger, and one in four for all strangers."""


class PoisonSettings(_Settings):
    """What happens to a message whose receiving transactions keep aborting."""

    aborts: int = Field(default=0, ge=0, le=255)
    """Aborted receives after which a message is moved away. 0 leaves it at the head for ever, as the specification
    does."""
    target: Literal["subqueue", "dead-letter"] = "subqueue"
    """Where it goes: the queue's ``poison`` subqueue, or the transactional dead-letter queue."""


class ReadAheadSettings(_Settings):
    """How much of a queue that is being received from is kept in memory."""

    messages: int = Field(default=256, ge=1)
    """Messages read from the store at a time."""
    queue_bytes: Bytes = Field(default=1 * _MIB, ge=1)
    """Bytes that one queue may keep."""
    total_bytes: Bytes = Field(default=48 * _MIB, ge=1)
    """Bytes that all queues together may keep."""


class TransportSettings(_Settings):
    """Connections to other queue managers: MS-MQQB 2.1. Durations are in seconds."""

    enabled: bool = True
    """Whether the node speaks to others at all."""
    address: str = ""
    """The IP address to listen at and to connect from; empty is every address of the machine. Order acknowledgments go
    to the address that messages came from, so nodes that share a machine have one each."""
    port: int = Field(default=1801, ge=1, le=0xFFFF)
    """2.1.1. Format names carry no port, so all nodes of an enterprise have the same."""
    ping: bool = False
    """Whether to ping before connecting, 3.1.5.2.2."""
    ping_port: int = Field(default=3527, ge=1, le=0xFFFF)
    """2.1.2."""
    sessions: int = Field(default=2_000, ge=1)
    """Connections that others may have to this node. Over it, those that say nothing make room, then idle ones of the
    address block that holds most."""
    sessions_per_peer: int = Field(default=200, ge=1)
    """Those of one IPv4 address, or one IPv6 network of 64 bits. A queue manager has one for each of its outgoing
    queues."""
    messages_per_second: int = Field(default=100_000, ge=1)
    """Messages a second that all connections of one address may bring. No message proves who sent it before it was
    read."""
    incomplete_bytes: Bytes = Field(default=64 * _MIB, ge=_MIB)
    """Bytes that all connections may hold of packets that are not complete yet: half packets cost no more. Over it, the
    one that has brought nothing for longest is closed."""


class ExportSettings(_Settings):
    """Events for the data pipeline, as Parquet segments; needs the extra ``export``. Messages never wait for it."""

    target: str = ""
    """A directory, or ``s3://bucket/prefix``. Empty: nothing is recorded."""
    roll_seconds: float = Field(default=60.0, gt=0)
    """A segment has the events of so many seconds,"""
    roll_bytes: Bytes = Field(default=32 * _MIB, ge=4096)
    """or so many bytes of them as they are recorded; they are a fifth of it in the segment."""
    backlog_bytes: Bytes = Field(default=512 * _MIB, ge=4096)
    """Events that wait in the store for a target that does not answer. What comes when it is full is counted, and not
    kept."""
    directory_bytes: Bytes = Field(default=10 * 1024 * _MIB, ge=0)
    """This node's segments in a directory: the oldest go when there are more. 0 is no limit; a bucket has its own
    rules of expiry."""
    labels: bool = True
    """Whether the labels of messages are told."""
    sample_seconds: float = Field(default=60.0, gt=0)
    """How often it is told how full the queues are."""
    site: str = ""
    """Name of the node's site, if it is to be another than the directory says."""


class BodySettings(_Settings):
    """What decoding one message's body may cost, wherever bodies are shown. Beyond it the bytes are shown, with the
    reason."""

    nodes: int = Field(default=DEFAULT_LIMITS.nodes, ge=1, le=10_000_000)
    """Values, elements and attributes."""
    depth: int = Field(default=DEFAULT_LIMITS.depth, ge=1, le=100)
    """Values within values."""
    octets: Bytes = Field(default=DEFAULT_LIMITS.octets, ge=1, le=64 * _MIB)
    """Bytes of the body, and of texts and byte strings in the result."""

    def limits(self) -> Limits:
        """As decoders take them."""
        return Limits(self.nodes, self.depth, self.octets)


class Settings(_Settings):
    """All settings of a queue manager node."""

    computer_name: str = ""
    """ComputerName, MS-MQDMPR 3.1.1.1. Empty takes the host's name up to the first dot, in upper case."""
    other_names: tuple[str, ...] = ()
    """Further names that mean this computer in format names: its qualified name, aliases."""
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
    """HardenedSecurity, MS-MQDMPR 3.1.1.1: no remote procedure call is answered or made, and the node has no sessions
    with other queue managers. Takes effect with a start."""
    export: ExportSettings = ExportSettings()
    bodies: BodySettings = BodySettings()


class LocalSettings(_Settings):
    """The socket on which applications of this machine reach the node."""

    socket: Path = Path("/run/qmnode/qmnode.sock")
    mode: int = Field(default=0o660, ge=0, le=0o777)
    """Permissions of the socket, as a number: 432 is 0o660, owner and group."""
    connections: int = Field(default=1_000, ge=1)
    """Applications at a time."""
    handles: int = Field(default=10_000, ge=1)
    """Queues, cursors and transactions that one application may have open."""


class ManagementSettings(_Settings):
    """The management API. The Unix socket needs no token: who may open it may operate the node."""

    socket: Path | None = Path("/run/qmnode/management.sock")
    mode: int = Field(default=0o600, ge=0, le=0o777)
    listen: str | None = None
    """Address and port for TCP, ``10.1.2.3:8443`` or ``[::1]:8443``. Needs tokens and a certificate."""
    tokens: Path | None = None
    """YAML file of bearer tokens: a list of ``name``, ``role`` (read or operate) and ``sha256`` of the token."""
    certificate: Path | None = None
    """PEM file with the certificate chain of the TCP side."""
    private_key: Path | None = None
    audit_log: Path | None = None
    """File to which every change is appended, a JSON object a line. None writes it to the log of the node."""
    request_size: Bytes = Field(default=16 * _MIB, ge=1024)
    """Bytes of a request, and of the bodies in an answer, at most."""
    batch: int = Field(default=1000, ge=1, le=100_000)
    """Messages of a request, or queues of a list, at most."""
    waiting_receives: int = Field(default=64, ge=0)
    """Requests that wait for a message, at a time."""
    longest_wait: float = Field(default=60.0, ge=0)
    """Seconds that a request may wait for a message. Those that ask for more wait so long."""
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
    """Which installed directory: ``ldap`` comes with the extra ``enterprise``."""
    settings: dict[str, Any] = {}
    """That directory's own settings; for ``ldap``: ``file``, which ``mqenterprise directory admit`` wrote."""
    sites_update: float = Field(default=12 * 3600.0, gt=0)
    """Seconds of the Directory Sites Update Timer (MS-MQDMPR 3.1.2.1)."""
    site_gates_update: float = Field(default=3600.0, gt=0)
    """Seconds of the Directory Site Gates Update Timer (MS-MQDMPR 3.1.2.2)."""
    online_check: float = Field(default=60.0, gt=0)
    """Seconds of the Directory Online Timer (MS-MQDMPR 3.1.2.5)."""


class NodeSettings(Settings):
    """Everything ``qmnode run`` is told: from a YAML file, and from the environment, which wins.

    The variable of a setting is its path in upper case, ``QMNODE_`` before it and two underscores between:
    ``QMNODE_STORAGE__SYNC=thread``.
    """

    data: Path = Path("/var/lib/qmnode")
    """Directory of the message store."""
    local: LocalSettings = LocalSettings()
    management: ManagementSettings = ManagementSettings()
    amqp: AmqpSettings = AmqpSettings()
    log: LogSettings = LogSettings()
    directory: DirectoryMembershipSettings = DirectoryMembershipSettings()


def read_settings(path: Path | None) -> NodeSettings:
    """The settings in a YAML file, or the defaults, with those of the environment. ConfigurationError otherwise."""
    values: Any = {}
    if path is not None:
        try:
            values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
            raise ConfigurationError(unreadable(path, error)) from error
        if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
            raise ConfigurationError(f"{path}: expected settings by name, such as 'data: /var/lib/qmnode'")
    try:
        return NodeSettings(**with_environment(NodeSettings, values))
    except (ValidationError, ConfigurationError) as error:
        raise ConfigurationError(explained(path, NodeSettings, error)) from error
