"""Settings of remote procedure calls: MS-MQRR, MS-MQQP, the part of MS-MQMP that opens a remote queue, MS-MQMR."""

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from qmnode.settings.units import Bytes


class RemoteReadSettings(BaseModel):
    """Remote reading of queues over DCE/RPC, by others here and by this node elsewhere. Durations are in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = False
    """Whether other machines may read queues of this node. Off by default: the queues of a workgroup let everyone
    receive (MS-MQDMPR 3.1.7.1.3.1), and that includes callers that do not authenticate.
    """
    management: bool = False
    """Whether administrators may look at this node from Windows (MS-MQMR), on the same port and with the same users,
    also while ``enabled`` is false. Off by default: it is a way in for administrators, and the management API, which
    needs tokens and TLS, does more.
    """
    address: str = ""
    """The IP address to listen on; empty means every address of the machine."""
    port: int = Field(default=2103, ge=0, le=0xFFFF)
    """The port of the interfaces, 0 for any. A port in use is raised by 11 until one is free (MS-MQQP 3.1.4.8)."""
    endpoint_mapper_port: int = Field(default=135, ge=0, le=0xFFFF)
    """The port of this node's endpoint mapper, and of others; 0 means none. Then those of others are not asked: their
    interfaces are expected at ``port``. Port 135 needs the capability CAP_NET_BIND_SERVICE.
    """

    users: Path | None = None
    r"""File of the users that authenticate with NTLM, mode 0600, one line each: ``DOMAIN:USER:PASSWORD``, or with
    hashes ``DOMAIN\USER:0:LM HASH:NT HASH:[U]:``.
    """
    keytab: Path | None = None
    """Kerberos keytab of the service, mode 0600."""
    realms: tuple[str, ...] = ()
    """Kerberos realms whose users are taken; empty: that of the service's own principal alone. A realm that is trusted
    by it may have users of the same names."""
    service: str = "host"
    """The service part of the Kerberos principal; the host's name is the other part."""
    service_host: str = ""
    """The host part of the principal for all computers that this node reads from; empty: each has its own."""
    account: str = ""
    r"""The account with which this node reads elsewhere, ``DOMAIN\user`` or ``user@REALM``. Empty: anonymously."""
    mechanism: Literal["ntlm", "kerberos", "negotiate"] = "negotiate"
    r"""How this node authenticates elsewhere. NTLM uses ``password_file``; Kerberos uses the tickets of the process and
    needs the extra ``kerberos``. With ``negotiate`` (SPNEGO) both sides agree on one: Kerberos is offered if there is a
    ticket, unless a password is given for an account ``DOMAIN\user``; NTLM if there is a password.
    """
    authenticate_to: tuple[str, ...] = ()
    """Hosts that this node authenticates itself to, besides the machines of its directory: names, domains with a dot
    before them (``.contoso.com``), addresses and networks. It reads elsewhere as nobody in particular."""
    readers: tuple[str, ...] = ()
    """Users and groups of this machine that may read queues elsewhere with ``account``, as in
    ``security.administrators``: ``group:billing``. Empty: all that may use the node, as it reads for all of them in one
    name."""
    password_file: Path | None = None
    """File with the password of ``account`` in its first line, mode 0600."""

    connections: int = Field(default=2_000, ge=1)
    """Incoming connections to this node, and those from one address."""
    connections_per_peer: int = Field(default=500, ge=1)
    held_bytes: Bytes = Field(default=64 * 1024 * 1024, ge=1)
    """Bytes of received messages of one client whose reads have not ended. One message is always allowed."""
    answer_bytes: Bytes = Field(default=128 * 1024 * 1024, ge=1024 * 1024)
    """Bytes of answers that clients have not read, over all connections. Half is for clients that authenticated."""
    pending_request_timeout: float = Field(default=300.0, gt=0)
    """The time in which a client of RemoteRead must end the read of a message that it was sent. After it the message
    returns to its place (MS-MQRR 3.1.2.2; Windows: RpcCancelTimeout, five minutes).
    """
    open_queues: int = Field(default=10_000, ge=1)
    """Queues that all clients together have open."""

    @model_validator(mode="after")
    def _password_is_somebodys(self) -> Self:
        if self.password_file is not None and not self.account:
            raise ValueError("remote_read.password_file is the password of remote_read.account: set that too")
        return self
