"""Archives that somebody else has made, in the place of backups."""

from __future__ import annotations

import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

from mqenterprise.directory.errors import DirectoryError
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.private_slapd import KEPT, EmbeddedDirectory
from qmnode.storage.backup import restore
from qmnode.storage.errors import StoreError
from tests.adversary.attacks import Area, attack
from tests.collection.conftest import COLLECTION
from tests.collection.test_release_wheels import tool, wheel
from tests.lab.servers import start_slapd

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.servers]
MIB = 1024**2
RESTORE = COLLECTION / "roles/queue_manager/files/restore.py"
SYSTEM_PYTHON = "/usr/bin/python3"
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


ZEROS = gzip.compress(bytes(64 * MIB))
"""64 MiB in 64 KiB; a file of several is read as if they were one."""


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """What is before a member that says it has so many bytes."""
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


def sparse(name: str, size: int) -> bytes:
    """A member of so many bytes with one block of data, the map of its holes: the rest are holes."""
    member = tarfile.TarInfo(name)
    member.size = 512
    member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": name,
                          "GNU.sparse.realsize": str(size)}  # fmt: skip
    return member.tobuf(tarfile.PAX_FORMAT) + f"1\n{size}\n0\n".encode().ljust(512, b"\0")


MEASURED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""
"""Runs a program from a small process: what a large one has before it becomes the program would count as well."""

BOMBS = {
    "more than the disk has": (gzip.compress(sparse("store/000009.sst", 1 << 40)), "no room"),
    "a header of a gigabyte": (gzip.compress(header("x", 1024 * MIB, tarfile.GNUTYPE_LONGNAME)) + 16 * ZEROS, "memory"),
    "a size below nothing": (gzip.compress(header("store/a", 0) + header("store/b", -1024)), "fewer than no bytes"),
    "no archive": (b"\x1f\x8b" + bytes(100), "cannot be restored"),
}


def unpack(archive: Path, data: Path) -> tuple[int, int, str]:
    """How ``restore.py unpack`` ends, the most KiB that it had, and what it says."""
    checksum = hashlib.sha256(archive.read_bytes()).hexdigest()
    program = archive.with_name("qmnode")
    program.write_text('#!/bin/sh\n[ "$1" = verify ] || cp -r "$2/." "$4"\n')
    program.chmod(0o755)
    words = [SYSTEM_PYTHON, RESTORE, "unpack", program, archive, data, "", "monday", checksum]
    limited = ["timeout", "--signal=KILL", "60", *map(str, words)]
    done = subprocess.run([SYSTEM_PYTHON, "-c", MEASURED, *limited], capture_output=True, text=True, check=False)
    return done.returncode, int(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.parametrize("bomb", BOMBS)
@attack(
    Area.DIRECTORY,
    can="as a node that was taken over, have a backup restored that claims a terabyte, fills memory or never ends",
    promised="the restore ends with the reason before it fills the disk or half a gigabyte, and the node goes on with "
    "its store and keys",
)
def test_a_forged_backup_of_a_store_fills_nothing(tmp_path: Path, bomb: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    content, reason = BOMBS[bomb]
    (tmp_path / "forged").write_bytes(content)

    code, most, said = unpack(tmp_path / "forged", data)

    assert code == 1 and reason in said and "Traceback" not in said, said
    assert most < 700 * 1024
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "qmnode"]
    with tarfile.open(tmp_path / "honest", "w:gz") as archive:
        for name in ("store/CURRENT", "store/large/1", "store/keys", "store/directory-cache.db"):
            archive.addfile(*((one := file(name, b"x"))[0], io.BytesIO(one[1])))
    assert unpack(tmp_path / "honest", data)[0] == 0
    assert {path.name for path in (tmp_path / ".data.restored").iterdir()} == {"CURRENT", "large", "restored-from"}


@attack(
    Area.DIRECTORY,
    can="as a node that was taken over, put links to files of root into a backup that root restores",
    promised="the restore names the link, and copies nothing that it leads to",
)
def test_a_link_in_a_backup_leads_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root's")
    for place in ("000099.sst", "large/1", "CURRENT", "large"):
        backup = tmp_path / place.replace("/", "-")
        (backup / "large").mkdir(parents=True)
        (backup / "CURRENT").write_text("MANIFEST-000005\n")
        if (backup / place).is_dir():
            (backup / place).rmdir()
        (backup / place).unlink(missing_ok=True)
        (backup / place).symlink_to(secret if place != "large" else tmp_path)
        with pytest.raises(StoreError, match="is a link, which no backup has"):
            restore(backup, tmp_path / "data")
        assert not (tmp_path / "data").exists()


INSTALL = COLLECTION / "roles/queue_manager/files/install.py"
ABOUT = "small-1.dist-info"
SMALL = {
    "small/__init__.py": b"",
    f"{ABOUT}/METADATA": b"Metadata-Version: 2.1\nName: small\nVersion: 1\n",
}
UP = "../" * 12


@attack(
    Area.DIRECTORY,
    can="have a wheel of a release, of an upgrade for example, write outside the release: by names of its files, its "
    "scripts or its compiled part, or by links",
    promised="nothing outside the folder of the release is written, and an incomplete release is not left behind",
)
def test_a_wheel_of_an_upgrade_writes_nothing_outside(tmp_path: Path) -> None:
    evil = f"{UP}{tmp_path}/evil"
    place = {
        "nothing": {},
        "a path upwards": {f"{evil}.py": b"x"},
        "an absolute path": {f"{tmp_path}/evil.py": b"x"},
        "a script outside": {f"small-1.data/scripts/{evil}": b"x"},
        "data outside": {f"small-1.data/data/{evil}": b"x"},
        "a console script outside": {f"{ABOUT}/entry_points.txt": f"[console_scripts]\n{evil} = small:main\n".encode()},
        "compiled outside": None,
        "a link": None,
    }
    for number, (what, files) in enumerate(place.items()):
        folder = tmp_path / f"{number}" / "wheels"
        folder.mkdir(parents=True)
        tool(folder, "installer")
        tag = f"cp{sys.version_info[0]}{sys.version_info[1]}-none-any"
        compiled = folder / f"small_compiled-0-{tag}.whl"
        with zipfile.ZipFile(compiled, "w") as packed:
            if what == "compiled outside":
                packed.writestr(f"{evil}.pyc", b"x")
        wheel(folder, "small-1", {**SMALL, **(files or {})})
        if what == "a link":
            with zipfile.ZipFile(compiled, "a") as packed:
                made = zipfile.ZipInfo("small/evil")
                made.external_attr = 0o120777 << 16
                packed.writestr(made, str(tmp_path))
                packed.writestr("small/evil/evil.pyc", b"x")
        releases = tmp_path / f"{number}" / "releases"
        done = installed(folder, releases)
        assert "Traceback" not in done.stderr, (what, done.stderr)
        assert done.returncode == 0 or what != "nothing", done.stderr
        assert not [one for one in tmp_path.rglob("*evil*") if "releases" not in one.parts], what
        assert not [one for one in releases.rglob("*") if one.is_symlink() and "evil" in str(one.resolve())]
        assert (releases / "1/.complete").exists() is (done.returncode == 0), what
        assert [*releases.iterdir()] == ([releases / "1"] if done.returncode == 0 else []), what


def installed(wheels: Path, releases: Path) -> subprocess.CompletedProcess[str]:
    """How ``install.py`` ends with an archive of these wheels."""
    archive = wheels.parent / "1.tar"
    with tarfile.open(archive, "w") as packed:
        for one in sorted(wheels.iterdir()):
            packed.add(one, f"wheels/{one.name}")
    checksum = hashlib.sha256(archive.read_bytes()).hexdigest()
    command = [sys.executable, INSTALL, releases, "1", checksum]
    with archive.open("rb") as given:
        return subprocess.run(command, stdin=given, capture_output=True, text=True, check=False)
