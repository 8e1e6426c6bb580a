"""Signed and encrypted messages, node to node in two processes: SHA-512, AES-256, the keys in a directory file, caches
warm; rates from the first send, which signs, to the last acknowledgment. Beside them, in each round, one process signs
the same bodies and does nothing else.

``python -m tests.bench.protected receive FOLDER`` is the other process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import statistics
import sys
import time
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, Final

import yaml
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from qmnode import Access, Message, QueueManager, Settings
from qmnode.directory.file import FileDirectory
from qmnode.security.key_stores import FileKeyStore
from qmnode.security.sender_identity import make_internal_certificate
from qmnode.settings.security import SecuritySettings, SignerSettings
from qmnode.structures.enumerations import AuthenticationLevel, PrivacyLevel
from qmnode.structures.guid import guid_from_text, guid_to_text, new_guid
from qmnode.structures.public_keys import MqUserSignCert, MqUserSignCerts
from qmnode.structures.security_descriptor import Sid
from tests.bench import Comparison, absolute, bench
from tests.bench.peer import Peer, loopback_address, say_processor_time
from tests.bench.transport import BATCH, BODY, PLAIN, folder, settings
from tests.security.keys import private_key
from tests.security.messages import encryption_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from qmnode.model.api import QueueApi

RATES: Final = {1024: 4_000, 2048: 1_500}
BARS: Final = {1024: 2.1, 2048: 1.45}
"""What a message may take, in bare signatures."""
TOTALS: Final = {1024: 12_000, 2048: 6_000}
"""Enough that the last half second, in which the timers wait for more to acknowledge, does not say it all."""
SIGNATURES: Final = 1_000
"""Before a round, and as many after it."""
WARM: Final = 100
ROUNDS: Final = 5
_HOUR: Final = 3600.0
_NAMES: Final = ("SENDER", "RECEIVER")
_USER: Final = Sid.from_text("S-1-5-21-7-8-9-1001")


def prepare(folder: Path, modulus_length: int) -> None:
    """The directory, the key stores of both nodes, and the user's key and certificate."""
    user, account, now = private_key(modulus_length), pwd.getpwuid(os.geteuid()).pw_name, time.time()
    certificate = make_internal_certificate(user, account, now - _HOUR, now + _HOUR)
    registered = MqUserSignCert(digest=bytes(16), identifier=new_guid(), certificate=certificate)
    directory = {
        "queue_managers": [
            {
                "identifier": guid_to_text(new_guid()),
                "computer_name": name,
                "qualified_computer_name": loopback_address(),
            }
            for name in _NAMES
        ],
        "users": [
            {
                "identifier": guid_to_text(new_guid()),
                "name": account,
                "security_identifier": _USER.write().hex(),
                "certificates": MqUserSignCerts(certificates=(registered,)).write().hex(),
            }
        ],
    }
    (folder / "directory.yaml").write_text(yaml.safe_dump(directory))
    key_file = folder / "user.key"
    key_file.write_bytes(user.to_der())
    key_file.chmod(0o600)
    for number, name in enumerate(_NAMES):
        (folder / name).mkdir()
        pair = encryption_pair(number=number, modulus_length=modulus_length, now=now - _HOUR)
        FileKeyStore(folder / name / "keys").replace_now((pair,), expected_version=0)


def _settings(folder: Path, name: str, address: str) -> Settings:
    account = pwd.getpwuid(os.geteuid()).pw_name
    security = SecuritySettings(signers={account: SignerSettings(private_key=folder / "user.key")})
    return settings(name, address).model_copy(update={"security": security})


@contextlib.asynccontextmanager
async def node(folder: Path, name: str) -> AsyncIterator[QueueManager]:
    """A node of the directory, which listens."""
    listed = yaml.safe_load((folder / "directory.yaml").read_text())["queue_managers"]
    (entry,) = (one for one in listed if one["computer_name"] == name)
    directory = FileDirectory(folder / "directory.yaml")
    configured = _settings(folder, name, entry["qualified_computer_name"])
    async with QueueManager.open(folder / name, configured, directory=directory) as qm:
        qm.adopt_identifier(guid_from_text(entry["identifier"]))
        await qm.network.start()
        yield qm


async def receive(folder: Path) -> None:
    """The other node. Its queue takes nothing that is not signed and encrypted."""
    async with node(folder, "RECEIVER") as qm:
        queue = await qm.create_queue(rf".\{PLAIN}", authentication=True, privacy_level=2)
        (folder / "queue").write_text(f"PRIVATE={guid_to_text(qm.identifier)}\\{queue.private_queue_number:08x}")
        await say_processor_time()


async def transfer(qm: QueueManager, out: QueueApi, name: str, total: int) -> None:
    """``total`` messages from the first send to the last acknowledgment."""
    queue: Any = qm.names.find(name)
    for _ in range(total // BATCH):
        await out.send_many(
            [
                Message(
                    BODY,
                    recoverable=True,
                    authentication_level=AuthenticationLevel.SIG20,
                    privacy_level=PrivacyLevel.ADVANCED,
                )
                for _ in range(BATCH)
            ]
        )
    while queue.message_count:
        await asyncio.sleep(0.001)


def sign(key: rsa.RSAPrivateKey, total: int) -> float:
    """Seconds for a signature."""
    scheme, digest = padding.PKCS1v15(), hashes.SHA512()
    start = perf_counter()
    for _ in range(total):
        key.sign(BODY, scheme, digest)
    return (perf_counter() - start) / total


async def measure(modulus_length: int) -> tuple[float, float, float, float]:
    """Medians of seconds, and of processor on each side, for a message; and of seconds for a signature."""
    measured, total = [], TOTALS[modulus_length]
    key = private_key(modulus_length).signing_key
    with folder() as place:
        prepare(place, modulus_length)
        peer = Peer("tests.bench.protected", place)
        try:
            async with node(place, "SENDER") as qm:
                name = (place / "queue").read_text()
                out = await qm.open_queue(name, Access.SEND)
                await transfer(qm, out, name, WARM)
                for _ in range(ROUNDS):
                    before = sign(key, SIGNATURES)
                    there, here, start = peer.processor(), process_time(), perf_counter()
                    await transfer(qm, out, name, total)
                    taken = perf_counter() - start, process_time() - here, peer.processor() - there
                    signature = (before + sign(key, SIGNATURES)) / 2
                    measured.append([*(one / total for one in taken), signature])
                assert not qm.queue_collection.dead_letter.message_count
        finally:
            peer.stop()
    seconds, here, there, signature = map(statistics.median, zip(*measured, strict=True))
    return seconds, here, there, signature


@bench("protected")
def protected() -> list[Comparison]:
    """Rates against bare signing, processor of both sides, by the size of the keys."""
    lines = []
    for modulus_length, rate in RATES.items():
        seconds, here, there, signature = asyncio.run(measure(modulus_length))
        kind, bar = f"RSA-{modulus_length}", BARS[modulus_length]
        name = f"signed, encrypted: {kind}"
        lines.append(Comparison(name, seconds, "bare signing", signature, bar))
        lines.append(absolute(name, seconds, f"{rate:,} a second", 1 / rate, bar * signature))
        lines.append(Comparison(f"{kind}: processor of the sender", here, "budget", 1 / rate))
        lines.append(Comparison(f"{kind}: processor of the receiver", there, "budget", 1 / rate))
    return lines


if __name__ == "__main__":
    asyncio.run(receive(Path(sys.argv[2])))
