"""The directory to start with: a private slapd with its own certificate authority, unprivileged, its data kept."""

import datetime
import hashlib
import io
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tarfile
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field

from mqenterprise.directory.authority import create_authority, issue, write_anew
from mqenterprise.directory.errors import DirectoryError, DirectoryUnavailable
from mqenterprise.directory.settings import BindMethod, DirectorySettings
from mqenterprise.directory.slapd_configuration import Installation, SlapdPaths, configuration_ldif

START_LIMIT: Final = 20.0
STOP_LIMIT: Final = 20.0
TOOL_LIMIT: Final = 600.0
"""Seconds for slapadd and slapcat; 100,000 entries take a few."""
PROGRAM_FOLDERS: Final = ("/usr/sbin", "/usr/local/sbin", "/usr/libexec", "/usr/local/libexec", "/usr/lib/openldap")
ACCOUNTS: Final = ("openldap", "ldap", "nobody")
KEPT: Final = ("directory.json", "admin.password", "tls/ca.pem", "tls/ca.key", "tls/server.pem", "tls/server.key")
DATA_MEMBER: Final = "data.ldif"
_LARGEST: Final = {**dict.fromkeys(KEPT, 1024**2), DATA_MEMBER: 2 * 1024**3}
"""Bytes of each member of a backup: what is larger was not written by us."""


class EmbeddedSettings(BaseModel):
    """Choices of the operator. Kept as ``directory.json`` in the state folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    root: str = Field(default="dc=msmq", pattern=r"^dc=[A-Za-z0-9-]+(,dc=[A-Za-z0-9-]+)*$")
    host: str = "127.0.0.1"
    port: int = Field(default=6360, ge=1, le=65535)
    names: tuple[str, ...] = ()
    """Further host names and addresses that the server's certificate is good for."""
    durable: bool = True
    """Whether each write is on the disk before it is answered."""


@dataclass(frozen=True, slots=True)
class Status:
    """The state of the private directory."""

    created: bool
    pid: int | None
    url: str | None
    answering: bool
    bytes_on_disk: int


class EmbeddedDirectory:
    """One private slapd and its state folder."""

    def __init__(self, state: Path) -> None:
        self.paths = SlapdPaths(state=state.absolute())

    @property
    def settings(self) -> EmbeddedSettings:
        """The options that it was created with. Raises :class:`DirectoryError` when there is none."""
        file = self.paths.state / "directory.json"
        if not file.exists():
            raise DirectoryError(f"no directory in {self.paths.state}: create one with 'mqenterprise directory up'")
        return EmbeddedSettings.model_validate(json.loads(file.read_text(encoding="utf-8")))

    def client_settings(self) -> DirectorySettings:
        """How the administrator reaches it."""
        settings = self.settings
        return DirectorySettings(
            servers=(self.url(settings),),
            root=settings.root,
            bind=BindMethod.SIMPLE,
            user=f"cn=admin,{settings.root}",
            password_file=self.paths.password,
            ca_file=self.paths.authority,
        )

    def write_client_settings(self) -> Path:
        """Write how the administrator reaches it, for the option --directory. Return the file."""
        file = (self.paths.state / "client.yaml").absolute()
        settings = self.client_settings().model_dump(mode="json", exclude_defaults=True)
        write_anew(file, yaml.safe_dump(settings, sort_keys=False).encode(), 0o600)
        return file

    @staticmethod
    def url(settings: EmbeddedSettings) -> str:
        """The URL that clients use."""
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        return f"ldaps://{host}:{settings.port}"

    @property
    def exists(self) -> bool:
        """Whether it was created."""
        return (self.paths.state / "directory.json").exists()

    def create(self, settings: EmbeddedSettings) -> None:
        """Make the state folder: keys, configuration and an empty database. An existing one is left as it is."""
        if self.exists:
            return
        self._folders()
        now = datetime.datetime.now(datetime.UTC)
        authority = create_authority(f"Private directory {settings.root}", now)
        authority.save(self.paths.authority, self.paths.tls / "ca.key")
        names = dict.fromkeys((settings.host, "localhost", "127.0.0.1", socket.gethostname(), *settings.names))
        issue(authority, settings.host, tuple(names), now).save(
            self.paths.tls / "server.pem", self.paths.tls / "server.key"
        )
        _private_text(self.paths.password, secrets.token_urlsafe(32) + "\n")
        self._configure(settings)
        _private_text(self.paths.state / "directory.json", settings.model_dump_json(indent=1) + "\n")
        self._hand_over()

    def start(self) -> int:
        """Start slapd and wait until it answers; the process id. One that runs already is left alone."""
        settings = self.settings
        running = self.pid()
        if running is not None:
            return running
        urls = f"{self.url(settings)} ldapi://{str(self.paths.socket).replace('/', '%2F')}"
        if self._configure(settings):
            self._hand_over()
        self.paths.pid.unlink(missing_ok=True)
        with os.fdopen(_opened(self.paths.log, os.O_APPEND), "ab") as log:
            process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603  our own arguments
                [_program("slapd"), "-d", "0", "-F", str(self.paths.configuration), "-h", urls],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **_identity(),
            )
        deadline = time.monotonic() + START_LIMIT
        while not self.answering():
            if process.poll() is not None:
                raise DirectoryUnavailable(f"slapd stopped at once: {self._reason(urls)}")
            if time.monotonic() > deadline:
                process.kill()
                process.wait()
                raise DirectoryUnavailable(f"slapd did not answer within {START_LIMIT:.0f} s: see {self.paths.log}")
            time.sleep(0.02)
        return process.pid

    def stop(self) -> bool:
        """Stop slapd and wait until it is gone. Whether it ran."""
        pid = self.pid()
        if pid is None:
            return False
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_LIMIT
        while _alive(pid):
            if time.monotonic() > deadline:
                raise DirectoryError(f"slapd (process {pid}) does not stop: look into {self.paths.log}")
            time.sleep(0.02)
        return True

    def pid(self) -> int | None:
        """The process that serves this state folder, if one does."""
        try:
            pid = int(self.paths.pid.read_text(encoding="ascii"))
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        # A process id is used again after a restart of the machine: it must be slapd with our configuration.
        return pid if os.fsencode(str(self.paths.configuration)) in command.split(b"\0") and _alive(pid) else None

    def answering(self) -> bool:
        """Whether something accepts connections on the private socket."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(str(self.paths.socket))
            except OSError:
                return False
            return True

    def status(self) -> Status:
        """Return its state; change nothing."""
        try:
            settings = self.settings
        except DirectoryError:
            return Status(created=False, pid=None, url=None, answering=False, bytes_on_disk=0)
        size = sum(file.stat().st_blocks * 512 for file in self.paths.data.glob("*"))
        pid = self.pid()
        return Status(True, pid, self.url(settings), pid is not None and self.answering(), size)

    def backup(self, target: Path) -> int:
        """Write data, keys and settings to one archive that only its owner can read. The number of entries that it
        holds.

        slapd may run meanwhile: slapcat reads one consistent state.
        """
        _ = self.settings
        ldif = self._tool("slapcat", "-F", str(self.paths.configuration), "-n", "1").stdout
        partial = target.with_name(target.name + ".partial")
        # Made anew: it holds keys, and what somebody else left under this name may be his to read.
        partial.unlink(missing_ok=True)
        with os.fdopen(_opened(partial, os.O_EXCL), "wb") as file:
            with tarfile.open(fileobj=file, mode="w:gz") as archive:
                for name in KEPT:
                    _add_member(archive, name, _read(self.paths.state / name))
                _add_member(archive, DATA_MEMBER, ldif)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
        return ldif.count(b"\ndn:") + ldif.startswith(b"dn:")

    def restore(self, source: Path, *, force: bool = False) -> None:
        """Put back what :meth:`backup` wrote. ``force`` moves an existing directory aside; else the call is refused."""
        members = _read_archive(source)
        if self.pid() is not None:
            raise DirectoryError("the directory is running: stop it first with 'mqenterprise directory down'")
        if (self.paths.state / "directory.json").exists():
            if not force:
                raise DirectoryError(f"{self.paths.state} holds a directory already: --force moves it aside")
            aside = self.paths.state.rename(self.paths.state.with_name(f"{self.paths.state.name}.{time.time_ns()}"))
        else:
            aside = None
        try:
            self._folders()
            for name in KEPT:
                _private_bytes(self.paths.state / name, members[name])
            self._configure(self.settings)
            self._tool("slapadd", "-q", "-F", str(self.paths.configuration), "-n", "1", given=members[DATA_MEMBER])
            self._hand_over()
        except DirectoryError:
            if aside is not None:  # the present one stays
                shutil.rmtree(self.paths.state)
                aside.rename(self.paths.state)
            raise

    def _folders(self) -> None:
        self._own_folder(self.paths.state)
        self.paths.state.chmod(0o700)
        for folder in (self.paths.configuration, self.paths.data, self.paths.tls, self.paths.run):
            self._own_folder(folder)

    @staticmethod
    def _own_folder(folder: Path) -> None:
        """Make a folder. DirectoryError for one of another account, which could read and replace what is put there."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        slapd = {pwd.getpwnam(_account()).pw_uid} if os.geteuid() == 0 else set()
        if folder.stat().st_uid not in {os.geteuid(), *slapd} or (
            folder.is_symlink() and folder.lstat().st_uid != os.geteuid()
        ):
            raise DirectoryError(f"{folder} belongs to another account: remove it, or choose another --state")

    def _configure(self, settings: EmbeddedSettings) -> bool:
        """Write the configuration, unless there is one; a directory of an earlier version gets our access rules."""
        password = _read(self.paths.password).decode("utf-8").strip()
        uid = pwd.getpwnam(_account()).pw_uid if os.getuid() == 0 else os.getuid()
        ldif = configuration_ldif(
            self.paths,
            settings.root,
            password,
            (uid, os.getuid()),
            durable=settings.durable,
            installation=Installation.of_this_machine(),
        ).encode("utf-8")
        digest = hashlib.sha256(ldif).hexdigest().encode("ascii")
        written = self.paths.configuration / "digest"
        with suppress(FileNotFoundError):
            if _read(written) == digest:
                return False
        shutil.rmtree(self.paths.configuration, ignore_errors=True)
        self.paths.configuration.mkdir(mode=0o700)
        self._tool("slapadd", "-F", str(self.paths.configuration), "-n", "0", given=ldif)
        _private_bytes(written, digest)
        return True

    def _hand_over(self) -> None:
        """Give everything to the account that slapd runs as, and see that it can get there."""
        if os.getuid() != 0:
            return
        account = pwd.getpwnam(_account())
        for path in (self.paths.state, *self.paths.state.rglob("*")):
            os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)
        for folder in self.paths.state.parents:
            if not folder.stat().st_mode & 0o001:
                raise DirectoryError(
                    f"the account {account.pw_name} that slapd runs as cannot pass through {folder}: "
                    "choose another --state, or let others pass (chmod o+x)"
                )

    def _reason(self, urls: str) -> str:
        """Why slapd does not run. ``-d 0`` is silent about its configuration, so a checker is asked."""
        check = self._tool("slaptest", "-u", "-F", str(self.paths.configuration), check=False)
        if check.returncode != 0:
            return check.stderr.decode(errors="replace").strip()[-500:]
        said = self.paths.log.read_text(encoding="utf-8", errors="replace").strip()[-500:]
        return said or f"cannot listen on {urls.split()[0]}: is another process there?"

    @staticmethod
    def _tool(name: str, *arguments: str, given: bytes = b"", check: bool = True) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(  # noqa: S603  our own arguments
            [_program(name), *arguments], input=given, capture_output=True, timeout=TOOL_LIMIT, check=False
        )
        if check and done.returncode != 0:
            raise DirectoryError(f"{name} failed: {done.stderr.decode(errors='replace').strip()[-500:]}")
        return done


def _program(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), *PROGRAM_FOLDERS)))
    if found is None:
        raise DirectoryError(f"{name} is not installed: install OpenLDAP's server (on Debian the package slapd)")
    return found


def _account() -> str:
    for name in ACCOUNTS:
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise DirectoryError(f"none of the accounts {', '.join(ACCOUNTS)} exists to run slapd as")


def _identity() -> dict[str, Any]:
    """Popen's arguments for running as somebody without privileges when we have them."""
    if os.getuid() != 0:
        return {}
    account = pwd.getpwnam(_account())
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": ()}


def _alive(pid: int) -> bool:
    """Whether the process runs. One that ended and was not waited for yet is collected when it is our child."""
    with suppress(ChildProcessError):
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return False
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _opened(path: Path, flags: int) -> int:
    """A file for its owner alone. Never through a link: slapd's account owns the folder, and we may be root."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | flags, 0o600)


def _read(path: Path) -> bytes:
    """A file of the state folder, never through a link."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        return file.read()


def _private_bytes(path: Path, content: bytes) -> None:
    with os.fdopen(_opened(path, os.O_TRUNC), "wb") as file:
        file.write(content)


def _private_text(path: Path, content: str) -> None:
    _private_bytes(path, content.encode("utf-8"))


def _add_member(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(content), 0o600, int(time.time())
    archive.addfile(member, io.BytesIO(content))


def _read_archive(source: Path) -> dict[str, bytes]:
    """The members that a backup must have, by name; nothing is unpacked by path, and links are not followed."""
    members: dict[str, bytes] = {}
    try:
        with tarfile.open(source, mode="r:gz") as archive:
            for member in archive:
                if (limit := _LARGEST.get(member.name)) is None:
                    continue
                file = archive.extractfile(member) if member.isreg() and member.size <= limit else None
                if file is None:
                    raise DirectoryError(f"{source}: {member.name} is not a file of at most {limit} bytes")
                members[member.name] = file.read()
        if missing := _LARGEST.keys() - members:
            raise DirectoryError(
                f"{source} is not a backup of a private directory: it lacks {', '.join(sorted(missing))}"
            )
        EmbeddedSettings.model_validate_json(members["directory.json"])
        members["admin.password"].decode()
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError) as error:
        raise DirectoryError(
            f"{source} is not a backup of a private directory: {' '.join(str(error).split())}"
        ) from None
    return members
