"""Archives that somebody else has made, in the place of backups."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

import pytest

from mqenterprise.directory.embedded import KEPT, EmbeddedDirectory
from mqenterprise.directory.errors import DirectoryError
from mqenterprise.directory.service import EnterpriseDirectory
from tests.adversary.attacks import Area, attack
from tests.lab.servers import start_slapd

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.servers]
Member = tuple[tarfile.TarInfo, bytes]


def file(name: str, content: bytes) -> Member:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    return member, content


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> Member:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member, b""


def folder(name: str) -> Member:
    member = tarfile.TarInfo(name)
    member.type = tarfile.DIRTYPE
    return member, b""


PASSWORD = "admin.password"
FORGERIES: dict[str, Callable[[Member], Member | None]] = {
    "a link to itself": lambda one: link(PASSWORD, PASSWORD),
    "a link to a file of the host": lambda one: link(PASSWORD, "/etc/shadow"),
    "a hard link to another member": lambda one: link(PASSWORD, "tls/ca.key", tarfile.LNKTYPE),
    "a folder": lambda one: folder(PASSWORD),
    "a large one": lambda one: file(PASSWORD, bytes(2 * 1024**2)),
    "one that is no text": lambda one: file(PASSWORD, b"\xff\xfe"),
    "none": lambda one: None,
}


def forged(backup: Path, target: Path, name: str, forge: Callable[[Member], Member | None]) -> Path:
    """A backup with another member of this name."""
    with tarfile.open(backup) as source, tarfile.open(target, "w:gz") as archive:
        for member in source:
            content = source.extractfile(member)
            assert content is not None
            one: Member | None = (member, content.read())
            if member.name == name:
                one = forge(one)
            if one is not None:
                archive.addfile(one[0], io.BytesIO(one[1]))
    return target


@attack(
    Area.DIRECTORY,
    can="have a forged backup of the private directory restored over one that exists",
    promised="nothing outside the archive is read, and the directory that was there stays",
)
def test_a_forged_backup_replaces_no_directory(open_folder: Path, tmp_path: Path) -> None:
    embedded = start_slapd(open_folder / "state")
    backup = tmp_path / "backup.tar.gz"
    embedded.backup(backup)
    embedded.stop()
    state = embedded.paths.state
    before = {name: (state / name).read_bytes() for name in KEPT}
    forgeries = [(PASSWORD, forge) for forge in FORGERIES.values()]
    forgeries += [
        ("directory.json", lambda one: file("directory.json", b'{"root": "dc=x\\nolcRootPW: x"}')),
        ("directory.json", lambda one: file("directory.json", b"[" * 100_000)),
        ("data.ldif", lambda one: file("data.ldif", b"dn: dc=elsewhere\nobjectClass: domain\ndc: elsewhere\n")),
    ]
    for name, forge in forgeries:
        archive = forged(backup, tmp_path / "forged.tar.gz", name, forge)
        with pytest.raises(DirectoryError):
            EmbeddedDirectory(state).restore(archive, force=True)
        assert {name: (state / name).read_bytes() for name in KEPT} == before
        assert [*open_folder.iterdir()] == [state]

    embedded.start()
    try:
        with EnterpriseDirectory(embedded.client_settings()) as directory:
            directory.prepare()
    finally:
        embedded.stop()
