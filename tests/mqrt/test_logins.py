"""Programs that write to the directory with the login that their environment names, on both servers.

Anne administers the directory, Bob may only read it, and write the certificates of his own entry.
"""

from __future__ import annotations

import asyncio
import subprocess
from typing import TYPE_CHECKING

import pytest

from mqenterprise.certificates.files import make_internal
from mqenterprise.certificates.registry import CertificateRegistry
from mqenterprise.directory.entries import Change, ChangeKind
from mqenterprise.directory.ldap_names import child
from tests.effects.binds import ANNE, BOB
from tests.effects.test_weakened_security import MACHINE, OPENLDAP, QUEUE, Bench, bench
from tests.mqrt.conftest import OWN, Library, at

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["bench"]
pytestmark = pytest.mark.servers

ALWAYS, IF_NOT_EXIST = 1, 2
DENIED = "0xC00E0025"


class Program:
    """A program in C with a login in its environment."""

    def __init__(self, library: Library, bench: Bench, folder: Path) -> None:
        self._program = library.program(OWN / "directory.c")
        self._bench = bench
        self.password = folder / "password"

    def as_user(self, name: str, *words: object, password: str | None = None, mode: int = 0o600) -> str:
        self.password.unlink(missing_ok=True)
        self.password.touch(mode)
        self.password.write_text((password or self._bench.users.login(name).password) + "\n")
        login = {"QMNODE_DIRECTORY_USER": name, "QMNODE_DIRECTORY_PASSWORD_FILE": str(self.password)}
        return self.run(*words, **login)

    def run(self, *words: object, **environment: str) -> str:
        """The code, and what the node says."""
        return subprocess.run(
            [self._program, *map(str, words)], env=at(self._bench.node.socket) | environment, capture_output=True,
            text=True, timeout=120, check=True,
        ).stdout  # fmt: skip


@pytest.fixture
def program(library: Library, bench: Bench, tmp_path: Path) -> Program:
    return Program(library, bench, tmp_path)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    file = tmp_path / "bob.der"
    file.write_bytes(make_internal(BOB, tmp_path / "bob.key", 1_700_000_000, 3650, 2048).encoded)
    return file


def test_a_user_registers_a_certificate_of_the_users_own(bench: Bench, program: Program, certificate: Path) -> None:
    def registered(name: str) -> list[bytes]:
        found = CertificateRegistry(bench.directory).list(name)
        return [one.certificate.encoded for one in found if one.certificate is not None]

    broken = certificate.with_name("broken.der")
    broken.write_bytes(certificate.read_bytes()[:100])
    for answer, code, reason in (
        (program.run("register", certificate, ALWAYS), DENIED, "with the user's own login"),
        (program.as_user(BOB, "register", certificate, ALWAYS, password="wrong"), DENIED, "with this password"),
        (program.as_user(BOB, "register", certificate, ALWAYS, mode=0o644), DENIED, "set its mode to 0600"),
        (program.as_user(BOB, "register", broken, ALWAYS), "0xC00E002C", "this cannot be registered"),
        (program.run("register", certificate, ALWAYS, QMNODE_DIRECTORY_USER=BOB), DENIED, "PASSWORD_FILE to the file"),
    ):
        assert answer.startswith(code) and reason in answer
    assert registered(BOB) == []

    for flags in (ALWAYS, IF_NOT_EXIST):
        assert program.as_user(BOB, "register", certificate, flags).startswith("0x00000000")
        assert registered(BOB) == [certificate.read_bytes()]
    taken = program.as_user(ANNE, "register", certificate, ALWAYS)
    assert f"registered for {BOB}" in taken and registered(ANNE) == []
    assert bench.users.login(BOB).password not in bench.node.said()


@OPENLDAP
def test_a_user_may_write_no_certificates_of_others(bench: Bench) -> None:
    users = bench.directory.connection.dialect.contexts.users
    for name, writers in ((ANNE, [ANNE]), (BOB, [ANNE, BOB])):
        change = Change(ChangeKind.REPLACE, "mSMQDigests", (bytes(16),))
        assert bench.users.able(lambda own: own.modify(child(name, users), [change])) == writers  # noqa: B023


@OPENLDAP
def test_public_queues_are_created_and_changed_with_the_login(bench: Bench, program: Program) -> None:
    pathname = QUEUE.replace(".", MACHINE)
    assert program.as_user(BOB, "create", pathname).startswith(DENIED)
    assert bench.label is None
    assert program.as_user(ANNE, "create", pathname).startswith("0x00000000")
    assert bench.label == "changed in C"
    assert bench.author("creatorsName").lower().startswith(f"cn={ANNE},")

    async def delete() -> None:
        async with bench.connect(bench.users.login(ANNE)) as node:
            await node.delete_queue(QUEUE)

    asyncio.run(delete())
