"""Kerberos against a real domain controller, bare and inside SPNEGO: tickets instead of passwords, every PDU sealed.

Clients are ours, impacket's and Samba's; servers are ours and Samba's.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from impacket.dcerpc.v5.rpcrt import RPC_C_AUTHN_LEVEL_PKT_INTEGRITY, RPC_C_AUTHN_LEVEL_PKT_PRIVACY

from qmnode import MessageQueuingError
from qmnode.dcerpc import ntlm
from qmnode.dcerpc.authentication import InitiatorAuthentication, acceptor_authentication
from qmnode.dcerpc.client import RpcClient
from qmnode.dcerpc.interface import Interface, syntax
from qmnode.dcerpc.kerberos import CONTEXT_ID, initiator_context, realm_of
from qmnode.dcerpc.ndr import U32, Parameters, member
from qmnode.dcerpc.negotiation import KERBEROS, NegotiationInitiator
from qmnode.dcerpc.pdu import WHOLE, PduType, SecTrailer, write_pdu_to_protect
from qmnode.dcerpc.protection import AuthenticationError, AuthenticationLevel, AuthenticationType, SecurityContext
from qmnode.dcerpc.server import Caller, RpcServer, service
from qmnode.model.stored_message import message_from_packet
from qmnode.remote_read.qm2qm import QM2QM
from qmnode.settings.remote_read import RemoteReadSettings
from qmnode.shares import RPC_ANSWER_BYTES, Accountant
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import parse_single_format_name
from tests.lab.samba import PASSWORD, DomainController
from tests.remote_read.conftest import THERE, Remote, serving
from tests.remote_read.foreign_client import Foreign, mapped_port, packet_of
from tests.remote_read.raw_client import RawClient, bind_pdu

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator


pytestmark = pytest.mark.servers
LEVELS = pytest.mark.parametrize(
    "level", [AuthenticationLevel.PRIVACY, AuthenticationLevel.INTEGRITY], ids=["privacy", "integrity"]
)
SERVICE = "host"
NAME = parse_single_format_name(THERE)
SAMBA_CLIENT = Path(__file__).with_name("samba_client.py")
SAMBA_PYTHON = "/usr/bin/python3"
"""Debian's, which has Samba's modules."""


@dataclass(frozen=True)
class Domain:
    """The domain controller, tickets of its administrator, and the keys of the service that is read from."""

    controller: DomainController
    keytab: Path

    @property
    def account(self) -> str:
        return f"administrator@{self.controller.realm}"

    def as_administrator(self, mechanism: str, **more: object) -> InitiatorAuthentication:
        return InitiatorAuthentication(
            RemoteReadSettings(
                account=self.account, mechanism=mechanism, service=SERVICE, service_host=self.controller.host, **more
            )
        )

    @asynccontextmanager
    async def serving(self, folder: Path, **settings: object) -> AsyncIterator[Remote]:
        async with serving(folder, **({"keytab": self.keytab} | settings)) as remote:
            yield remote

    def is_principal(self, remote: Remote) -> bool:
        """Whether all that is open was opened by the administrator."""
        openers = {queue.opener.principal.casefold() for queue in remote.server.queues._by_number.values()}
        return openers == {self.account.casefold()}

    async def read_one(self, folder: Path, security: Callable[[str], SecurityContext]) -> None:
        """A message is received by a client with these credentials, which the server takes for the administrator's."""
        async with self.serving(folder) as remote:
            await remote.send(b"one")
            async with await remote.connect(security=security) as node:
                queue = await node.open_queue(NAME)
                assert self.is_principal(remote)
                assert (await queue.receive(0)).body == b"one"


@pytest.fixture
def domain(domain_controller: DomainController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Domain]:
    monkeypatch.setenv("KRB5_CONFIG", str(domain_controller.krb5_conf))
    monkeypatch.setenv("KRB5CCNAME", str(tmp_path / "tickets"))  # impacket takes no FILE:
    monkeypatch.setenv("KRB5RCACHENAME", "none:")
    domain_controller.kinit()
    domain_controller.register_service(SERVICE)
    keytab = tmp_path / "keytab"
    configuration = str(domain_controller.folder / "dc/etc/smb.conf")
    tool = shutil.which("samba-tool")
    assert tool is not None
    subprocess.run(
        [tool, "domain", "exportkeytab", str(keytab), "-s", configuration],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    keytab.chmod(0o600)
    return Domain(domain_controller, keytab)


@pytest.mark.parametrize("mechanism", ["kerberos", "negotiate"])
async def test_a_ticket_says_who_reads(domain: Domain, tmp_path: Path, mechanism: str) -> None:
    async with domain.serving(tmp_path) as remote:
        body = bytes(range(256)) * 100
        await remote.send(body, b"two")
        async with await remote.connect(security=domain.as_administrator(mechanism)) as node:
            queue = await node.open_queue(NAME)
            assert domain.is_principal(remote)
            assert (await queue.receive(0)).body == body
            async with queue.cursor() as cursor:
                assert (await cursor.receive(0)).body == b"two"


@pytest.mark.parametrize("mechanism", ["kerberos", "negotiate"])
async def test_users_of_another_realm_are_not_taken(domain: Domain, tmp_path: Path, mechanism: str) -> None:
    """An account of a realm that the domain trusts may have the name of an account of the domain."""
    async with domain.serving(tmp_path, realms=("OTHER.TEST",)) as remote:
        with pytest.raises(MessageQueuingError):
            async with await remote.connect(security=domain.as_administrator(mechanism)) as node:
                await node.open_queue(NAME)
        assert not remote.server.queues._by_number


@pytest.mark.parametrize(
    ("principal", "realm"),
    [
        ("alice@LAB.TEST", "LAB.TEST"),
        ("host/a.lab.test@LAB.TEST", "LAB.TEST"),
        (r"alice\@LAB.TEST@EVIL.TEST", ""),
        (r"alice@EVIL.TEST\@LAB.TEST", ""),
        ("alice", ""),
        ("", ""),
    ],
)
def test_the_realm_is_what_follows_the_name(principal: str, realm: str) -> None:
    assert realm_of(principal) == realm


@pytest.mark.parametrize("mechanism", ["kerberos", "negotiate"])
async def test_integrity_alone_is_taken(domain: Domain, tmp_path: Path, mechanism: str) -> None:
    level = AuthenticationLevel.INTEGRITY

    def with_integrity(host: str) -> SecurityContext:
        ticket = initiator_context(SERVICE, domain.controller.host, domain.account, level)
        return ticket if mechanism == "kerberos" else NegotiationInitiator([(KERBEROS, ticket)], level, CONTEXT_ID)

    await domain.read_one(tmp_path, with_integrity)


async def test_kerberos_proves_the_agreement_when_it_was_not_the_first_choice(domain: Domain, tmp_path: Path) -> None:
    level = AuthenticationLevel.PRIVACY

    def prefers_another(host: str) -> SecurityContext:
        ticket = initiator_context(SERVICE, domain.controller.host, domain.account, level)
        password = ntlm.initiator_context(SERVICE, host, domain.account, "Secret-1", level, CONTEXT_ID)
        return NegotiationInitiator([(("1.2.3.4",), password), (KERBEROS, ticket)], level, CONTEXT_ID)

    await domain.read_one(tmp_path, prefers_another)


def test_without_a_ticket_the_reason_is_said(domain: Domain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'none'}")
    for mechanism in ("kerberos", "negotiate"):
        with pytest.raises(AuthenticationError, match="Kerberos"):
            domain.as_administrator(mechanism)("anywhere")


async def test_a_server_without_a_keytab_is_read_from_with_the_password(domain: Domain, tmp_path: Path) -> None:
    """The client prefers Kerberos, the server has NTLM alone: both prove that nobody took Kerberos from the list."""
    users, password = tmp_path / "users", tmp_path / "password"
    users.write_text(":administrator@LAB.TEST:Secret-1\n")
    password.write_text("Secret-1\n")
    users.chmod(0o600)
    password.chmod(0o600)
    security = domain.as_administrator("negotiate", password_file=password)
    async with domain.serving(tmp_path, keytab=None, users=users) as remote:
        await remote.send(b"one")
        async with await remote.connect(security=security) as node:
            queue = await node.open_queue(NAME)
            assert domain.is_principal(remote)
            assert (await queue.receive(0)).body == b"one"
    async with domain.serving(tmp_path / "second", users=None) as remote:
        await remote.send(b"one")
        async with await remote.connect(security=security) as node:
            assert (await (await node.open_queue(NAME)).receive(0)).body == b"one"


async def test_a_ticket_for_another_service_is_refused(domain: Domain, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"\x05\x02")
    damaged.chmod(0o600)
    async with domain.serving(tmp_path, keytab=damaged) as remote:
        with pytest.raises(MessageQueuingError) as caught:
            await remote.connect(security=domain.as_administrator("negotiate"))
        assert caught.value.code is ErrorCode.MQ_ERROR_ACCESS_DENIED


@pytest.mark.parametrize("ndr64", [False, True], ids=["NDR", "NDR64"])
@LEVELS
async def test_impacket_reads_with_a_ticket_inside_spnego(
    domain: Domain, tmp_path: Path, level: AuthenticationLevel, ndr64: bool
) -> None:
    impackets = {
        AuthenticationLevel.PRIVACY: RPC_C_AUTHN_LEVEL_PKT_PRIVACY,
        AuthenticationLevel.INTEGRITY: RPC_C_AUTHN_LEVEL_PKT_INTEGRITY,
    }
    domain.as_administrator("kerberos")("anywhere")  # the ticket is in the cache, where impacket looks for it
    async with domain.serving(tmp_path) as remote:
        await remote.send(b"secret" * 2000, b"two")

        def work() -> list[int]:
            foreign = Foreign(
                remote.address, remote.port, user="administrator", password=PASSWORD, domain=domain.controller.realm,
                level=impackets[level], ndr64=ndr64, kerberos=(domain.controller.host, domain.controller.address),
            )  # fmt: skip
            status = foreign.open(r"OS:SERVING\private$\orders")
            assert domain.is_principal(remote)
            started = foreign.start()
            assert message_from_packet(packet_of(started)).body == b"secret" * 2000
            return [status, foreign.end(started)]

        assert await asyncio.wait_for(asyncio.to_thread(work), 120) == [0, 0]
        assert await remote.bodies() == [b"two"]


class _Nothing(Parameters):
    """is_server_listening has no parameters."""


class _Listening(Parameters):
    status: int = member(U32, "status")
    listening: int = member(U32, "return value")


MANAGEMENT = Interface("mgmt", syntax("afa8bd80-7d8a-11c9-bef4-08002b102989", 1))
IS_LISTENING = MANAGEMENT.method("is_server_listening", 2, _Nothing, _Listening, "C706 appendix Q")
DRSUAPI = bytes.fromhex("354251e3064bd111ab0400c04fc2dcd204000000")
"""An interface of domain controllers that the endpoint mapper knows."""


async def samba_calls(domain: Domain, settings: RemoteReadSettings, options: str, mechanism: str) -> set[str]:
    """Samba's client calls a server with these settings three times: as whom, in small letters."""
    callers: list[str] = []

    async def is_listening(caller: Caller, _: _Nothing) -> _Listening:
        callers.append(caller.principal.casefold())
        return _Listening(status=0, listening=1)

    services = [service(MANAGEMENT, {IS_LISTENING: is_listening})]
    server = RpcServer(
        services, Accountant().open(RPC_ANSWER_BYTES, 1 << 20), security=acceptor_authentication(settings)
    )
    await server.start(domain.controller.address, 0)
    try:
        called = await asyncio.create_subprocess_exec(
            SAMBA_PYTHON, str(SAMBA_CLIENT), domain.controller.host, domain.controller.address, str(server.port),
            options, mechanism, PASSWORD, str(domain.controller.folder / "empty.conf"),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await asyncio.wait_for(called.communicate(), 120)
        assert (called.returncode, output) == (0, b"(0, 1)\n" * 3), output.decode(errors="replace")
    finally:
        await server.stop()
    assert len(callers) == 3
    return set(callers)


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """The administrator, by both of his names."""
    path = tmp_path / "users"
    path.write_text(f"LAB:administrator:{PASSWORD}\n:administrator@LAB.TEST:{PASSWORD}\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("options", ["spnego,seal", "spnego,sign", "krb5,seal", "krb5,sign", "spnego,seal,bigendian"])
async def test_samba_calls_with_a_ticket(domain: Domain, users: Path, options: str) -> None:
    """Samba's client speaks SPNEGO with header signing, as Windows does."""
    settings = RemoteReadSettings(users=users, keytab=domain.keytab)
    assert await samba_calls(domain, settings, options, "kerberos") == {domain.account.casefold()}


@pytest.mark.parametrize("options", ["spnego,seal", "spnego,sign", "ntlm,seal", "ntlm,sign", "spnego,seal,bigendian"])
async def test_samba_calls_with_a_password(domain: Domain, users: Path, options: str) -> None:
    """It proves the agreement on NTLM, and wants it proved."""
    settings = RemoteReadSettings(users=users, keytab=domain.keytab)
    assert await samba_calls(domain, settings, options, "ntlm") == {r"lab\administrator"}


async def test_samba_takes_ntlm_where_there_is_no_kerberos(domain: Domain, users: Path) -> None:
    """It prefers Kerberos, and has sent a token of it before it hears that there is none."""
    called = await samba_calls(domain, RemoteReadSettings(users=users), "spnego,seal", "either")
    assert called == {domain.account.casefold()}


async def test_samba_s_own_server_takes_our_tickets_inside_spnego(domain: Domain) -> None:
    """Another acceptor than ours: the domain controller itself, asked whether it listens."""
    controller = domain.controller
    port = await asyncio.to_thread(mapped_port, controller.address, 135, DRSUAPI)
    ticket = initiator_context("ldap", controller.host, domain.account, AuthenticationLevel.PRIVACY)
    security = NegotiationInitiator([(KERBEROS, ticket)], AuthenticationLevel.PRIVACY, CONTEXT_ID)
    client = await RpcClient.connect(controller.address, port, (MANAGEMENT,), security=security)
    for _ in range(3):
        answer = await client.call(MANAGEMENT, IS_LISTENING, _Nothing())
        assert (answer.status, answer.listening) == (0, 1)
    client.abort()


@pytest.mark.parametrize("mechanism", [AuthenticationType.KERBEROS, AuthenticationType.NEGOTIATE])
async def test_a_token_that_is_none_is_refused_with_a_word(
    domain: Domain, tmp_path: Path, mechanism: AuthenticationType, caplog: pytest.LogCaptureFixture
) -> None:
    async with domain.serving(tmp_path) as remote:
        for token in (b"", b"\x60", b"\x60\x84", b"\x60\x00" * 20, b"\x6e\x82\x01", bytes(range(256)), bytes(3000)):
            trailer = SecTrailer(auth_type=mechanism, auth_level=AuthenticationLevel.PRIVACY, context_id=1)
            body = bind_pdu(QM2QM.syntax)[16:]
            parts = write_pdu_to_protect(PduType.BIND, 1, body, WHOLE, trailer, len(token), 4)
            async with RawClient(remote.address, remote.port) as client:
                await client.send(b"".join((*parts, token)))
                answer = await client.receive()
                if token:
                    assert answer is not None and answer.pdu_type == PduType.BIND_NAK
                    assert await client.closes()
        assert not [record for record in caplog.records if record.exc_info], "a traceback in the log"
