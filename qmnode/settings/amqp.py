"""Settings of the AMQP 1.0 door."""

from datetime import date
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from qmnode.settings.units import Bytes
from qmnode.structures.guid import ZERO_GUID, guid_from_text

_MIB = 1024 * 1024


class AmqpSettings(BaseModel):
    """The AMQP 1.0 door (docs/amqp.md); needs the extra ``amqp``. Durations are in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = False
    """Whether programs may use the queues over AMQP 1.0."""
    address: str = ""
    """The IP address to listen at; empty is every address of the machine."""
    port: int | None = Field(default=None, ge=0, le=0xFFFF)
    """By default 5671 with a certificate and 5672 without one; 0 for any that is free."""
    certificate: Path | None = None
    """PEM file with the door's certificate chain. With it the door speaks TLS and nothing else."""
    private_key: Path | None = None
    authorities: Path | None = None
    """PEM file of the authorities whose client certificates are believed: their owners may use EXTERNAL. Names come
    from the subject's common name. A certificate that names a queue manager is no user's."""
    queue_managers: dict[str, Annotated[str, Field(min_length=1)]] = {}
    """GUIDs of queue managers whose bridges log in with the certificates of their nodes, and the user that each one
    is here."""
    server_certificates_until: date | None = None
    """The last day (UTC) on which users may log in with certificates that servers may show as well. After it, the
    extended key usage of a user's certificate must permit clients alone. Without it there is no last day."""
    tokens: Path | None = None
    """YAML file of the names and secrets for PLAIN, as ``management.tokens``, which is the default."""
    directory_passwords: bool = False
    """Whether users of the directory may log in with PLAIN, with their account names and passwords. The node checks
    them by a simple bind at the directory, over TLS. Also needs a certificate here, or a loopback address."""
    password_failures: int = Field(default=10, ge=1)
    """Wrong passwords of one user, or from one address, in a minute. At the limit, the directory is not asked any more:
    its own limit may lock accounts."""
    anonymous: bool = False
    """Whether clients may come without a name. They are anonymous to the queues' access lists."""

    connections: int = Field(default=2_000, ge=1)
    """Connections at a time, and those of one address."""
    connections_per_peer: int = Field(default=500, ge=1)
    links: int = Field(default=256, ge=1)
    """Links of one connection."""
    transaction_timeout: float = Field(default=300.0, gt=0)
    """A transaction that takes longer is rolled back."""
    transaction_bytes: Bytes = Field(default=256 * _MIB, ge=_MIB)
    """Bytes of the messages that all clients have sent in transactions that have not ended. Over its share of them, a
    client's message is refused, and its transaction can only be rolled back."""
    message_size: Bytes = Field(default=5 * _MIB, ge=1024)
    """Bytes of a message in AMQP. Message Queuing has 4 MiB for the body."""
    frame_size: Bytes = Field(default=64 * 1024, ge=512, le=16 * _MIB)
    """Bytes of a frame that a client may send. A larger message comes in several frames."""
    credit: int = Field(default=200, ge=1)
    """Messages that a sender may have under way on one link."""
    prefetch: int = Field(default=1_000, ge=1)
    """Messages that one link has locked and not settled, however much credit its receiver gives."""
    held_bytes: Bytes = Field(default=32 * _MIB, ge=1)
    """Bytes of them of one connection. One message it may have, however large."""
    partial_bytes: Bytes = Field(default=64 * _MIB, ge=_MIB)
    """Bytes of messages that all connections have begun to send and not completed. Over its share of them, a client's
    connection is closed."""
    attached_bytes: Bytes = Field(default=4 * _MIB, ge=64 * 1024)
    """Bytes of the frames with which the clients of all connections have attached links: names, addresses, properties.
    Over its share of them, a client's connection is closed."""
    temporary_queues: int = Field(default=1_000, ge=0)
    """Temporary queues of all clients. Over its share of them, a client gets no more."""
    temporary_queue_bytes: Bytes = Field(default=8 * _MIB, ge=1024)
    """The quota of each temporary queue."""
    handshake_timeout: float = Field(default=10.0, gt=0)
    """Until then a connection is authenticated and open."""
    idle_timeout: float = Field(default=60.0, ge=1)
    """A connection that sends nothing for so long, not even an empty frame, is closed."""

    @field_validator("queue_managers")
    @classmethod
    def _are_queue_managers(cls, given: dict[str, str]) -> dict[str, str]:
        for text in given:
            try:
                named = guid_from_text(text)
            except ValueError:
                named = ZERO_GUID
            if named == ZERO_GUID:
                raise ValueError(f"{text!r:.60} is no GUID of a queue manager: `qmnode status` there shows it")
        return given

    @model_validator(mode="after")
    def _secrets_are_protected(self) -> Self:
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("amqp.certificate and amqp.private_key belong together: set both or neither")
        if self.authorities is not None and self.certificate is None:
            raise ValueError("amqp.authorities are for TLS: set amqp.certificate and amqp.private_key too")
        if self.directory_passwords and not self.takes_passwords:
            raise ValueError(
                "amqp.directory_passwords: others could read the passwords on their way: set amqp.certificate and "
                "amqp.private_key, or amqp.address to a loopback address"
            )
        return self

    @property
    def listening_port(self) -> int:
        if self.port is not None:
            return self.port
        return 5672 if self.certificate is None else 5671

    @property
    def takes_passwords(self) -> bool:
        """Whether PLAIN is offered: not where others could read the password on its way."""
        if self.certificate is not None:
            return True
        try:
            return ip_address(self.address).is_loopback
        except ValueError:
            return False
