"""No part of a private key in anything that a running node shows: each place is searched."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pytest

import qmnode
from qmnode import Access, Message, MessageQueuingError
from qmnode.security.rsa_keys import PrivateKey
from qmnode.structures.enumerations import AuthenticationLevel, PrivacyLevel
from tests.certificates.enterprise import ACCOUNT, ALICE, user_certificate
from tests.keys.processes import QUEUE, NodeProcess, ReplicatedDirectory
from tests.security.keys import private_key

pytestmark = pytest.mark.servers

ANSWERS = (
    "/v1/node",
    "/v1/keys",
    "/v1/quotas",
    "/v1/connections",
    "/v1/queues",
    "/readyz",
    "/metrics",
    "/openapi.json",
)


def forms_of(key: PrivateKey) -> list[bytes]:
    """The private numbers and the encoding, in the forms in which they could show; the middle of each is enough."""
    numbers = key.signing_key.private_numbers()
    raw = [value.to_bytes((value.bit_length() + 7) // 8, "big") for value in (numbers.d, numbers.p, numbers.q)]
    encoded = key.to_der()
    found = [encoded[len(encoded) // 2 :][:40]]
    for value in (*raw, encoded):
        text = b64encode(value)
        found += [value[8:40], value[::-1][8:40], value.hex().encode()[16:80], text[16:80]]
        found += [repr(value[8:40])[2:-1].encode(), str(int.from_bytes(value, "big")).encode()[:60]]
    return found


async def test_a_running_node_shows_no_private_key(tmp_path: Path) -> None:
    user_key, certificate = tmp_path / "user.key", tmp_path / "user.der"
    user_key.write_bytes(private_key(1024).to_der())
    user_key.chmod(0o600)
    certificate.write_bytes(user_certificate())
    directory = ReplicatedDirectory(tmp_path)
    node = NodeProcess(
        tmp_path / "A",
        directory,
        account_security_identifiers={ACCOUNT: str(ALICE)},
        signers={ACCOUNT: {"private_key": str(user_key), "certificate": str(certificate)}},
    )
    node.settings["log"] = {"level": "debug"}
    directory.write({"queue_managers": [node.entry]})
    directory.replicate()
    shown: dict[str, bytes] = {}
    try:
        await node.start()
        await directory.take_over()
        name = await node.create_queue()
        async with qmnode.connect(node.socket) as qm:
            out = await qm.open_queue(name, Access.SEND)
            level, privacy = AuthenticationLevel.SIG20, PrivacyLevel.ADVANCED
            await out.send(Message(b"signed", recoverable=True, authentication_level=level, privacy_level=privacy))
            with pytest.raises(MessageQueuingError) as error:
                await out.send(Message(b"x", authentication_level=level, hash_algorithm=0x8001))
            shown["error"] = repr(error.value).encode()
            received = await (await qm.open_queue(f"DIRECT=OS:{QUEUE}")).receive(timeout=60)
            assert received.authentication_level == level
            shown["message"] = received.packet
            await qm.backup(tmp_path / "backup")
        user_key.chmod(0o644)  # and what is said of faults
        (tmp_path / "A" / "store" / "keys").chmod(0o644)
        for path in ANSWERS:
            shown[path] = (await node.asks("GET", path)).encode()
        shown["reload"] = (await node.asks("POST", "/v1/keys/reload")).encode()
        assert "0644" in shown["reload"].decode()
        assert node.process is not None
        process = Path(f"/proc/{node.process.pid}")
        shown["arguments"] = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        limits = (process / "limits").read_text()
    finally:
        node.stop()
    for file in (tmp_path / "backup").rglob("*"):
        if file.is_file():
            shown[f"backup {file.name}"] = file.read_bytes()
    shown["log"] = node.log.encode()

    (tmp_path / "A" / "store" / "keys").chmod(0o600)
    keys = [pair.private_key for pair in node.store.read_now().pairs if pair.private_key is not None]
    assert len(keys) >= 2
    kept = (tmp_path / "A" / "store" / "keys").read_bytes()
    assert all(any(form in kept for form in forms_of(key)) for key in keys)  # it would be found
    for key in (*keys, private_key(1024)):
        for form in forms_of(key):
            for place, content in shown.items():
                assert form not in content, place
    assert b"signed" in shown["message"] and json.loads(shown["log"].splitlines()[0])
    assert next(line for line in limits.splitlines() if line.startswith("Max core file size")).split()[4:6] == [
        "0",
        "0",
    ]
