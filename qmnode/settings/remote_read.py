"""Settings of remote read: MS-MQQP, and of MS-MQMP what opens a remote queue."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from qmnode.settings.units import Bytes


class RemoteReadSettings(BaseModel):
    """Reading of queues over DCE/RPC, by others here and by this node elsewhere. Durations are in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = False
    """Whether others may read queues of this node. Off by default: the queues of a workgroup let everyone receive
    (MS-MQDMPR 3.1.7.1.3.1), and who does not authenticate is one of everyone."""
    address: str = ""
    """The IP address to listen at; empty is every address of the machine."""
    port: int = Field(default=2103, ge=0, le=0xFFFF)
    """The port of the interfaces, 0 for any that is free. One that is in use is raised by 11 until one is free (MS-MQQP
    3.1.4.8)."""
    endpoint_mapper_port: int = Field(default=135, ge=0, le=0xFFFF)
    """Where this node's endpoint mapper is, and that of others; 0 for none, and then those of others are not asked:
    their interfaces are expected at ``port``. Port 135 needs the capability CAP_NET_BIND_SERVICE."""

    users: Path | None = None
    """File of the users that authenticate with NTLM, mode 0600, a line each: ``DOMAIN:USER:PASSWORD``, or with hashes
    ``DOMAIN\\USER:0:LM HASH:NT HASH:[U]:``."""
    keytab: Path | None = None
    """Kerberos keytab of the service, mode 0600."""
    service: str = "host"
    """The service of the Kerberos principal, which is that service at the host's name."""
    service_host: str = ""
    """That host's name for all computers that this node reads from; empty: each has its own."""
    account: str = ""
    """As whom this node reads queues elsewhere, ``DOMAIN\\user`` or ``user@REALM``. Empty: as nobody in particular."""
    mechanism: Literal["ntlm", "kerberos", "negotiate"] = "negotiate"
    """How this node authenticates elsewhere. NTLM takes ``password_file``; Kerberos takes the tickets that the process
    has and needs the extra ``kerberos``. With ``negotiate`` (SPNEGO) both sides agree on one: Kerberos is offered if
    there is a ticket, unless a password is given for an account ``DOMAIN\\user``; NTLM if there is a password."""
    password_file: Path | None = None
    """File with the password of ``account`` in its first line, mode 0600."""

    connections: int = Field(default=2_000, ge=1)
    """Connections that others may have to this node, and those of one address."""
    connections_per_peer: int = Field(default=500, ge=1)
    calls_per_connection: int = Field(default=1_024, ge=1)
    """Calls of one connection at a time; one more is answered with a fault. A read that waits is a call."""
    context_handles: int = Field(default=4_096, ge=1)
    """Context handles of one client: a queue is one, each message that is received and not ended another."""
    held_bytes: Bytes = Field(default=64 * 1024 * 1024, ge=1)
    """Bytes of messages that one client has received and not ended. One message it may have, however large."""
    open_queues: int = Field(default=10_000, ge=1)
    """Queues that all clients together have open."""
    cursors: int = Field(default=1_024, ge=1)
    """Cursors of one open queue."""
    request_size: Bytes = Field(default=65_536, ge=4_096)
    """Bytes of one request, over all its fragments."""
    fragment: Bytes = Field(default=5_840, ge=1_432, le=65_535)
    """Bytes of a PDU. Windows has 5,840, C706 12.6.3.1 demands 1,432."""
    bind_timeout: float = Field(default=15.0, gt=0)
    """Within this a connection is bound and authenticated, and a PDU that has begun is complete."""

    @model_validator(mode="after")
    def _password_is_somebodys(self) -> Self:
        if self.password_file is not None and not self.account:
            raise ValueError("remote_read.password_file is the password of remote_read.account: set that too")
        return self
