"""Fixtures: both kinds of real directory servers, started once for all tests that ask for them."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mqenterprise.directory.errors import ObjectNotFound
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.private_slapd import EmbeddedDirectory, EmbeddedSettings
from mqenterprise.directory.settings import DirectorySettings, ServerKind
from tests.lab.addresses import free_alias
from tests.lab.samba import DomainController

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

SLAPD_PORT = 6360
SWEPT_CLASSES = (
    "mSMQConfiguration",
    "mSMQQueue",
    "mSMQSettings",
    "mSMQSiteLink",
    "mSMQCustomRecipient",
    "mSMQGroup",
    "mSMQMigratedUser",
    "site",
    "server",
    "computer",
    "user",
)


@dataclass(frozen=True)
class DirectoryServer:
    """One of the two, as tests see it."""

    kind: ServerKind
    settings: DirectorySettings
    """The administrator's."""

    @property
    def is_active_directory(self) -> bool:
        return self.kind is ServerKind.ACTIVE_DIRECTORY

    def settings_with(self, **changed: object) -> DirectorySettings:
        """The administrator's settings with some changed."""
        values = self.settings.model_dump()
        if self.settings.password is not None:
            values["password"] = self.settings.password.get_secret_value()
        return DirectorySettings.model_validate(values | changed)


def start_slapd(folder: Path, root: str = "dc=lab,dc=test", host: str | None = None) -> EmbeddedDirectory:
    """A private slapd on an address of its own. Stop it with ``stop()``."""
    host = host or free_alias([SLAPD_PORT])
    embedded = EmbeddedDirectory(folder)
    embedded.create(EmbeddedSettings(root=root, host=host, port=SLAPD_PORT, durable=False))
    embedded.start()
    return embedded


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that slapd's unprivileged account can pass through; pytest's own cannot be passed through."""
    folder = Path(tempfile.mkdtemp(prefix="qmslapd"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


class Shared:
    """A server that the modules of the tests share, each of which finds it as it was when it started."""

    SWEPT = "(|" + "".join(f"(objectClass={name})" for name in SWEPT_CLASSES) + ")"

    def __init__(self, settings: DirectorySettings) -> None:
        self.settings = settings
        self._first = self._objects()

    def sweep(self) -> None:
        """Delete what came since: an object that one module leaves would change what the next one sees."""
        with EnterpriseDirectory(self.settings) as directory:
            for dn in sorted(self._objects() - self._first, key=lambda dn: dn.count(",")):
                with suppress(ObjectNotFound):  # it was beneath one that is gone
                    directory.connection.delete(dn, tree=True)

    def _objects(self) -> set[str]:
        with EnterpriseDirectory(self.settings) as directory:
            contexts = directory.connection.dialect.contexts
            return {
                entry.dn
                for base in (contexts.root, contexts.configuration)
                for entry in directory.connection.search(base, self.SWEPT, ("1.1",))
            }


@pytest.fixture(scope="session")
def shared_servers() -> list[Shared]:
    """The servers that are running."""
    return []


@pytest.fixture(scope="session")
def writing_modules(request: pytest.FixtureRequest) -> set[Path]:
    """Those with a test that can write into a shared directory."""
    servers = {"slapd", "domain_controller", "directory_server"}
    return {item.path for item in request.session.items if servers & set(getattr(item, "fixturenames", ()))}


@pytest.fixture(scope="module", autouse=True)
def swept_servers(
    request: pytest.FixtureRequest, shared_servers: list[Shared], writing_modules: set[Path]
) -> Iterator[None]:
    """Nothing that a module wrote into a shared directory is there for the next one."""
    yield
    if request.path in writing_modules:
        for server in shared_servers:
            server.sweep()


@pytest.fixture(scope="session")
def slapd(shared_servers: list[Shared]) -> Iterator[EmbeddedDirectory]:
    """OpenLDAP, with the schema and the settings of the private directory."""
    folder = Path(tempfile.mkdtemp(prefix="qmslapd"))
    folder.chmod(0o711)
    embedded = start_slapd(folder / "state")
    try:
        with EnterpriseDirectory(embedded.client_settings()) as directory:
            directory.prepare()
        shared = Shared(embedded.client_settings())
        shared_servers.append(shared)
        yield embedded
        shared_servers.remove(shared)
    finally:
        embedded.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def domain_controller(shared_servers: list[Shared]) -> Iterator[DomainController]:
    """A Samba Active Directory domain controller."""
    controller = DomainController()
    try:
        controller.start()
        shared = Shared(controller.settings())
        shared_servers.append(shared)
        yield controller
        shared_servers.remove(shared)
    finally:
        controller.stop()


@pytest.fixture(params=[ServerKind.OPENLDAP, ServerKind.ACTIVE_DIRECTORY], ids=["slapd", "samba"])
def directory_server(request: pytest.FixtureRequest) -> DirectoryServer:
    """Each of the two in turn. Tests share them: use names from :func:`fresh_name`."""
    if request.param is ServerKind.OPENLDAP:
        return DirectoryServer(request.param, request.getfixturevalue("slapd").client_settings())
    return DirectoryServer(request.param, request.getfixturevalue("domain_controller").settings())


def leave_to_soak(items: Iterable[pytest.Item], folder: Path, kept: Collection[str]) -> None:
    """Of the tests in a folder over Active Directory, leave all but those of these names to ``make soak``.

    Over OpenLDAP all of them are in ``make test``, and tests/directory shows there that both servers are alike.
    """
    for item in items:
        if not isinstance(item, pytest.Function) or not item.path.is_relative_to(folder):
            continue
        callspec = getattr(item, "callspec", None)
        over = callspec.params.get("directory_server") if callspec else None
        if over is ServerKind.ACTIVE_DIRECTORY and item.originalname not in kept:
            item.add_marker("soak")


@pytest.fixture
def directory(directory_server: DirectoryServer) -> Iterator[EnterpriseDirectory]:
    """Each of the two, open for its administrator."""
    with EnterpriseDirectory(directory_server.settings) as opened:
        yield opened


_numbers = itertools.count(1)


@pytest.fixture
def fresh_name() -> Callable[[str], str]:
    """Names that no other test has used."""
    return lambda prefix: f"{prefix}{next(_numbers)}"
