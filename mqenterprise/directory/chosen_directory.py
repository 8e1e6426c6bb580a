"""Choose the directory of a command: a file of settings, or the private directory of this machine."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from mqenterprise.directory.errors import INSTEAD, DirectoryError
from mqenterprise.directory.settings import DirectorySettings, OtherServers
from qmnode.settings.yaml_text import settings_in
from qmnode.structures.text import nearest

ENVIRONMENT: Final = "MQENTERPRISE_DIRECTORY"


def default_state() -> Path:
    """Where the private directory of this machine, or of this user, lies."""
    if os.getuid() == 0:
        return Path("/var/lib/mqenterprise/directory")
    data = Path(os.environ.get("XDG_DATA_HOME", ""))  # ignored if it is relative, as its specification wants
    return (data if data.is_absolute() else Path.home() / ".local/share") / "mqenterprise/directory"


def load_settings(file: Path | None = None) -> DirectorySettings:
    """The settings in a YAML file, or in the one that MQENTERPRISE_DIRECTORY names, or of the private directory.

    Paths in the file are relative to it. Raises :class:`DirectoryError` with what is wrong and where.
    """
    if file is None and os.environ.get(ENVIRONMENT):
        file = Path(os.environ[ENVIRONMENT])
    if file is None:
        from mqenterprise.directory.private_slapd import EmbeddedDirectory  # loads what makes certificates

        embedded = EmbeddedDirectory(default_state())
        try:
            return embedded.client_settings()
        except DirectoryError as error:
            raise DirectoryError(
                f"no directory is named (--directory FILE or {ENVIRONMENT}) and this machine has no private one: "
                "create one with 'mqenterprise directory up'"
            ) from error
        except PermissionError as error:
            raise DirectoryError(f"the private directory in {default_state()} is not yours to read: {error}") from error
    try:
        content = settings_in(file)
    except ValueError as error:
        raise DirectoryError(str(error)) from None
    if not isinstance(content, dict):
        raise DirectoryError(f"{file} should be a mapping of settings: servers, user, password_file, ca_file ...")
    if content.get("directory") == "none":
        raise DirectoryError(f"{file} declares an enterprise without a directory; {INSTEAD}")
    return _relative_to(file.parent, settings_from(content, str(file)))


def settings_from(values: Mapping[str, Any], where: str = "directory") -> DirectorySettings:
    """The settings that were written down. Raises :class:`DirectoryError` with what is wrong in them."""
    try:
        return DirectorySettings.model_validate(values)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc']) or 'settings'}: {_sentence(problem)}"
            for problem in error.errors()
        )
        raise DirectoryError(f"{where}: {wrong}") from error


def _sentence(problem: Any) -> str:
    if problem["type"] != "extra_forbidden":
        return str(problem["msg"])
    near = nearest(str(problem["loc"][-1]), DirectorySettings.model_fields)
    return "no such setting" if near is None else f"no such setting (did you mean {near}?)"


def _relative_to(folder: Path, settings: DirectorySettings) -> DirectorySettings:
    """The settings with their relative paths taken from that folder."""
    changed: dict[str, Any] = dict(_paths(folder, settings))
    if settings.catalogue is not None:
        changed["catalogue"] = settings.catalogue.model_copy(update=_paths(folder, settings.catalogue))
    changed["domains"] = {
        name: other.model_copy(update=_paths(folder, other)) for name, other in settings.domains.items()
    }
    return settings.model_copy(update=changed)


def _paths(folder: Path, settings: DirectorySettings | OtherServers) -> dict[str, Path]:
    names = ("password_file", "ca_file", "client_certificate", "client_key", "notify_through")
    return {name: folder / value for name in names if (value := getattr(settings, name, None)) is not None}
