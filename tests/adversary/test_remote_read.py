"""Attackers at the door of remote read: between a client and a node, and with the handles of others."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest
from spnego._ntlm_raw.crypto import hmac_md5, rc4init, sealkey, signkey

from qmnode import MessageQueuingError
from qmnode.dcerpc.authentication import initiator_authentication
from qmnode.dcerpc.errors import RpcFault
from qmnode.dcerpc.protection import AuthenticationError, AuthenticationLevel, AuthenticationType
from qmnode.remote_read import remoteread
from qmnode.remote_read.remoteread import REMOTE_READ
from qmnode.settings.remote_read import RemoteReadSettings
from tests.adversary.attacks import Area, attack
from tests.lab.sddl import parse_sddl
from tests.remote_read.conftest import QUEUE, Remote, serving
from tests.remote_read.test_authentication import ALICE, NAME, private

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from qmnode.remote_read.client_interfaces import RemoteNode

KEY_EXCHANGE, KEYS_OF_128_BITS, KEYS_OF_56_BITS, SESSION_SECURITY = 1 << 30, 1 << 29, 1 << 31, 1 << 19
ENCRYPTED_KEY, FLAGS, MIC = 52, 60, 72
"""Places in an AUTHENTICATE_MESSAGE (MS-NLMP 2.2.1.3)."""


@pytest.fixture
async def remote(tmp_path: Path) -> AsyncIterator[Remote]:
    """A queue that only alice may use."""
    users = private(tmp_path / "users", "CONTOSO:alice:Secret-1\nCONTOSO:bob:Secret-2\n")
    async with serving(tmp_path, users=users) as one:
        await one.manager.set_queue(QUEUE, security=parse_sddl(f"O:{ALICE}G:{ALICE}D:(A;;0xffff;;;{ALICE})").write())
        yield one


def alice(folder: Path) -> Any:
    """Alice's own client."""
    file = private(folder / "password", "Secret-1\n")
    settings = RemoteReadSettings(account="CONTOSO\\alice", password_file=file, mechanism="ntlm")
    made = initiator_authentication(settings)
    assert made is not None
    return made("victim")


class Relay:
    """An attacker to whom alice's client authenticates, and who passes her proof on to the node, with changes.

    The attacker does not know her password, and so not the key of her session. ``key`` is what the attacker takes for
    it; None is her own, for what a client does that lets itself be weakened.
    """

    level, auth_type, context_id, token_size = AuthenticationLevel.PRIVACY, AuthenticationType.NTLM, 0, 16
    header_signing = False

    def __init__(self, victim: Any, key: bytes | None, **changes: int) -> None:
        self._victim = victim
        self.context_id = victim.context_id
        self._key = key
        self._changes = changes
        self._said = b""
        self.complete = False
        self.principal = ""

    def step(self, token: bytes) -> bytes:
        answer: bytes = self._victim.step(token)
        self._said += token
        if not token:
            self._said += answer
            return answer
        whole = bytearray(answer)
        (flags,) = struct.unpack_from("<I", whole, FLAGS)
        flags = (flags | self._changes.get("add", 0)) & ~self._changes.get("remove", 0)
        struct.pack_into("<I", whole, FLAGS, flags)
        if (size := self._changes.get("key_size")) is not None:
            struct.pack_into("<HH", whole, ENCRYPTED_KEY, size, size)
        context = self._victim._context
        key = context._session_key if self._key is None else self._key
        whole[MIC : MIC + 16] = bytes(16)
        whole[MIC : MIC + 16] = hmac_md5(key, self._said + bytes(whole))
        context._session_key, context._context_attr = key, flags
        _derive(context)
        self.complete = True
        return bytes(whole)

    def protect(self, head: bytes, body: bytes, trailer: bytes) -> tuple[bytes, bytes]:
        return self._victim.protect(head, body, trailer)  # type: ignore[no-any-return]

    def unprotect(self, head: bytes, body: bytes, trailer: bytes, token: bytes) -> bytes:
        return self._victim.unprotect(head, body, trailer, token)  # type: ignore[no-any-return]


def _derive(context: Any) -> None:
    """Have the victim's context derive its keys from the attacker's session key."""
    for direction, usage in (("out", "initiate"), ("in", "accept")):
        setattr(context, f"_sign_key_{direction}", signkey(context._context_attr, context._session_key, usage))
        key = sealkey(context._context_attr, context._session_key, usage)
        setattr(context, f"_handle_{direction}", rc4init(key))


@attack(
    Area.REMOTE_READ,
    can="have the client of a user authenticate to the attacker, relay the proof to a node, and replace the key "
    "of the session by none, by a short one, or by a guess",
    promised="the node takes a whole key only: without the password, no call of the attacker is the user's",
)
@pytest.mark.parametrize("key_size", [0, 1, 16])
async def test_a_relayed_proof_opens_nothing(remote: Remote, tmp_path: Path, key_size: int) -> None:
    await remote.send(b"for alice")
    relay = Relay(alice(tmp_path), b"\x00" * key_size, add=KEY_EXCHANGE, key_size=key_size)
    with pytest.raises((AuthenticationError, MessageQueuingError, ConnectionError)):
        async with await remote.connect(security=lambda _: relay) as node:
            queue = await node.open_queue(NAME)
            await queue.receive(0)
    async with await remote.connect(security=lambda _: alice(tmp_path)) as node:
        assert (await (await node.open_queue(NAME)).receive(0)).body == b"for alice"


@attack(
    Area.REMOTE_READ,
    can="have a client and a node agree on weaker protection: keys of 56 or 40 bits, one key for both directions, no "
    "encryption, no signatures",
    promised="the node refuses the client",
)
@pytest.mark.parametrize("weaker", [KEYS_OF_128_BITS, KEYS_OF_128_BITS | KEYS_OF_56_BITS, SESSION_SECURITY, 0x20, 0x10])
async def test_protection_is_not_weakened(remote: Remote, tmp_path: Path, weaker: int) -> None:
    relay = Relay(alice(tmp_path), None, remove=weaker)
    with pytest.raises((AuthenticationError, MessageQueuingError, ConnectionError)):
        async with await remote.connect(security=lambda _: relay) as node:
            await node.open_queue(NAME)
    async with await remote.connect(security=lambda _: Relay(alice(tmp_path), None)) as node:
        await node.open_queue(NAME)


@attack(
    Area.REMOTE_READ,
    can="use the handle of a queue or of a read that is closed, that another client has, or whose client is gone",
    promised="such a handle is no handle, and the message of an honest reader stays this reader's",
)
async def test_handles_are_their_owners_while_they_are_open(remote: Remote, tmp_path: Path) -> None:
    await remote.send(b"one", b"two")
    async with (
        await remote.connect(security=lambda _: alice(tmp_path)) as honest,
        await remote.connect(security=lambda _: alice(tmp_path)) as other,
    ):
        queue = await honest.open_queue(NAME)
        begun = await other.open_queue(NAME)
        context = begun.session._context
        closed = await other.open_queue(NAME)
        old = closed.session._context
        await closed.close()

        async def tries(node: RemoteNode, handle: bytes) -> None:
            for method, request in (
                (remoteread.START_RECEIVE, remoteread.StartReceiveRequest(context=handle, request_id=7)),
                (remoteread.CLOSE_QUEUE, remoteread.ContextRequest(context=handle)),
            ):
                with pytest.raises(RpcFault, match="CONTEXT_MISMATCH"):
                    await node.reader.call(REMOTE_READ, method, request)

        await tries(other, old)
        await tries(honest, context)
        await tries(honest, bytes(4) + b"\xff" * 16)
        await other.close()
        await tries(honest, context)
        assert [(await queue.receive(0)).body for _ in range(2)] == [b"one", b"two"]
