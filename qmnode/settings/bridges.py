"""Settings of the bridges between queues of the node and AMQP 1.0 peers."""

from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from qmnode.settings.units import Bytes

_MIB: Final = 1024 * 1024
_PORTS: Final = {"amqp": 5672, "amqps": 5671}


class SecretSettings(BaseModel):
    """A secret in a store of secrets."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    store: str = "aws"
    """The name of the installed store (entry point group ``qmnode.secrets``): ``aws`` is AWS Secrets Manager."""
    name: str = Field(min_length=1)
    settings: dict[str, str] = {}
    """The store's own settings; for ``aws``: ``region``, ``endpoint_url``."""


BridgeName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
BRIDGE_NAME_RULE: Final = "the name of a bridge has up to 64 letters, digits, '.', '_' and '-', and begins with no sign"


class BridgeSettings(BaseModel):
    """A bridge (docs/bridges.md): messages of one queue go to an address of a peer, or come from there."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    direction: Literal["out", "in"]
    """``out`` takes messages from the queue and sends them to the peer; ``in`` is the other way round."""
    queue: str = Field(min_length=1)
    """The queue, as clients of the AMQP door name it."""
    peer: str
    """URL of the peer: ``amqps://broker.example:5671``, or ``amqp://`` in clear."""
    address: str = Field(min_length=1)
    """The peer's name for its queue, topic or exchange."""
    guarantee: Literal["at-least-once", "exactly-once"] = "at-least-once"
    """``exactly-once`` needs a peer with transactions, a ``ledger``, and a transactional queue for ``in``."""
    ledger: str = ""
    """For ``exactly-once``: a queue of the peer for this bridge alone. It holds one message, which says how far the
    bridge is."""
    user: str = ""
    """The name for SASL PLAIN. With neither this nor a certificate, the bridge is ANONYMOUS."""
    password_file: Path | None = None
    """File on the machine of the node with the password, which is read before each attempt."""
    password_secret: SecretSettings | None = None
    """The password in a store of secrets, in place of a file."""
    certificate: Path | None = None
    """PEM file of the client certificate, for SASL EXTERNAL."""
    private_key: Path | None = None
    """PEM file of its private key."""
    authorities: Path | None = None
    """PEM file of the authorities that the peer's certificate is checked against; by default those of the machine."""
    virtual_host: str = ""
    """The host name in AMQP's open; by default that of the peer. RabbitMQ takes ``vhost:NAME``."""
    window: int = Field(default=200, ge=1, le=10_000)
    """Messages under way at a time."""
    message_size: Bytes = Field(default=5 * _MIB, ge=1024)
    """Bytes of a message in AMQP that is taken from the peer."""
    idle_timeout: float = Field(default=60.0, ge=1)
    """Seconds of silence after which the connection counts as lost."""
    connect_timeout: float = Field(default=20.0, gt=0)
    """Seconds until the peer has accepted connection and link."""
    retry: float = Field(default=1.0, gt=0)
    """Seconds until the first new attempt after a failure. Each further wait is twice as long, up to
    ``longest_retry``."""
    longest_retry: float = Field(default=60.0, gt=0)
    """The longest wait between two attempts, in seconds."""

    @field_validator("peer")
    @classmethod
    def _is_url(cls, peer: str) -> str:
        try:
            parts = urlsplit(peer)
            right = parts.scheme in _PORTS and parts.hostname and parts.port != 0
        except ValueError:
            right = False
        if not right or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ValueError("peer is amqp://HOST[:PORT] or amqps://HOST[:PORT]")
        if parts.username is not None or parts.password is not None:
            raise ValueError("peer has no user and password: set user, and password_file or password_secret")
        return peer

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("certificate and private_key belong together: set both or neither")
        secrets = (self.password_file is not None) + (self.password_secret is not None)
        if secrets != bool(self.user):
            raise ValueError("user goes with either password_file or password_secret")
        if not self.uses_tls and (self.certificate or self.authorities):
            raise ValueError("certificate and authorities are for TLS: let peer begin with amqps://")
        if not self.uses_tls and self.user and not self._is_near:
            raise ValueError("a password is not sent in clear: let peer begin with amqps://")
        if (self.guarantee == "exactly-once") != bool(self.ledger):
            raise ValueError("guarantee: exactly-once and ledger, a queue of the peer, belong together")
        return self

    @property
    def uses_tls(self) -> bool:
        return self.peer.startswith("amqps:")

    @property
    def host(self) -> str:
        """The host name or address in the peer's URL."""
        return urlsplit(self.peer).hostname or ""

    @property
    def port(self) -> int:
        """The port in the peer's URL, or that of its scheme."""
        parts = urlsplit(self.peer)
        return parts.port or _PORTS[parts.scheme]

    @property
    def _is_near(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False
