"""A survey from its beginning to its files: directories, files, machines, judgement, declaration, report."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.settings import DirectorySettings
from mqenterprise.operations.settings import split_address
from mqenterprise.survey.declaring import declaration_of
from mqenterprise.survey.directories import Directories
from mqenterprise.survey.estate import Estate, SurveyError
from mqenterprise.survey.exports import read_exports
from mqenterprise.survey.judgement import judge
from mqenterprise.survey.machines import Asking, ask_all
from mqenterprise.survey.report import document, page
from qmnode.dcerpc.authentication import initiator_authentication
from qmnode.errors import MessageQueuingError
from qmnode.remote_read.client_interfaces import RemoteReadOptions
from qmnode.settings.remote_read import RemoteReadSettings
from qmnode.structures.text import printable_json

DECLARATION: Final = "estate.yaml"
REPORT: Final = "report.json"
PAGE: Final = "report.html"


@dataclass(frozen=True, slots=True)
class Survey:
    """A survey that is asked for: its sources, and how machines are asked."""

    name: str = "Enterprise"
    directories: Sequence[DirectorySettings] = ()
    files: Sequence[Path] = ()
    machines: Mapping[str, str] = field(default_factory=dict)
    """Hosts of machines, as ``host`` or ``host:port``, where those of the directory are not to be asked."""
    asking: Asking = field(default_factory=lambda: Asking(RemoteReadOptions()))


@dataclass(frozen=True, slots=True)
class Surveyed:
    """The results of a survey."""

    report: dict[str, Any]
    declaration: str

    def write(self, folder: Path) -> None:
        """Write the declaration and both forms of the report into a new folder, all or nothing."""
        check_output(folder)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
            try:
                (made / DECLARATION).write_text(self.declaration, "utf-8")
                text = json.dumps(self.report, ensure_ascii=False, indent=1, allow_nan=False)
                (made / REPORT).write_text(printable_json(text) + "\n", "utf-8", errors="replace")
                (made / PAGE).write_text(page(self.report), "utf-8", errors="replace")
                made.rename(folder)
            except BaseException:
                shutil.rmtree(made, ignore_errors=True)
                raise
        except OSError as error:
            raise SurveyError(f"{folder} cannot be written: {error.strerror}") from None


def check_output(folder: Path) -> None:
    """Raise SurveyError if the folder is there, with something in it, or cannot be made."""
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists() or folder.is_symlink():
        raise SurveyError(f"{folder} exists: name another --output, or delete it")
    above = folder.parent
    if above.exists() and not os.access(above, os.W_OK):
        raise SurveyError(f"{above} cannot be written to: name another --output")


def options_of(user: str, password_file: Path | None, port: int) -> RemoteReadOptions:
    """Return how machines are asked: anonymously, or as an account. Raises SurveyError for a useless password file."""
    try:
        settings = RemoteReadSettings(
            account=user, password_file=password_file, mechanism="negotiate" if password_file is None else "ntlm"
        )
        security = initiator_authentication(settings)
        if security is not None and password_file is not None:
            security("localhost")
    except (MessageQueuingError, ValueError) as error:
        raise SurveyError(getattr(error, "sentence", str(error))) from None
    return RemoteReadOptions(endpoint_mapper_port=port, security=security)


def survey(wanted: Survey) -> Surveyed:
    """Survey the estate. Machines that do not answer are in the report.

    Raises SurveyError, and the errors of directories.
    """
    began, clock = time.time(), time.monotonic()
    estate = Estate(wanted.name)
    with ExitStack() as stack:
        opened = [stack.enter_context(EnterpriseDirectory(settings)) for settings in wanted.directories]
        directories = Directories(opened)
        directories.read(estate)
        read_exports(estate, wanted.files)
        directories.resolve_access(estate)
    _place(estate, wanted.machines)
    if not estate.machines:
        raise SurveyError("there is nothing to survey: give --directory, --machine or --export")
    asyncio.run(ask_all(estate, wanted.asking))
    for queue in estate.queues.values():
        owner = estate.machine(queue.machine)
        queue.machine, queue.domain = owner.name, owner.domain
    judgement = judge(estate, began)
    return Surveyed(document(estate, judgement, began, time.monotonic() - clock), declaration_of(estate))


def _place(estate: Estate, machines: Mapping[str, str]) -> None:
    for name, address in machines.items():
        machine = estate.machine(name)
        try:
            machine.host, port = split_address(address, 0)
        except ValueError as error:
            raise SurveyError(f"--machine {name}={address}: {error}") from None
        machine.host, machine.port = machine.host.strip("[]"), port or None
