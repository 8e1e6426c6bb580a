"""Letting a computer into the directory: its entry, its password, and the settings that its node binds with."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from mqenterprise.directory.authority import write_anew
from mqenterprise.directory.entries import Change, ChangeKind
from mqenterprise.directory.errors import ConditionFailed, DirectoryError, ObjectNotFound
from mqenterprise.directory.ldap_names import name_of, parent_of, split_dn
from mqenterprise.directory.passwords import hashed
from qmnode.directory.port import QueueManager, equals
from qmnode.settings.node import computer_name_fault
from qmnode.structures.text import nearest

if TYPE_CHECKING:
    from mqenterprise.directory.connection import LdapConnection
    from mqenterprise.directory.open_directory import EnterpriseDirectory

SETTINGS_FILE = "directory.yaml"
PASSWORD_FILE = "directory.password"  # noqa: S105  a file's name
AUTHORITY_FILE = "directory-ca.pem"
_ATTRIBUTE: Final = "userPassword"
_SCHEME: Final = re.compile(rb"\{(?!CLEARTEXT\})[\w./-]+\}", re.IGNORECASE)
_CLEAR_SCHEME: Final = re.compile(rb"\{CLEARTEXT\}", re.IGNORECASE)


def admit(directory: EnterpriseDirectory, computer: str, folder: Path, *, new: bool = True) -> QueueManager:
    """Give the queue manager of a computer an account, and write what its node needs into a folder.

    ``new``: make a queue manager for a computer that has none in the directory.

    Raises DirectoryError for a folder with the settings of another node, which would be lost.

    Each time the password is a new one: the files of an earlier admission are worth nothing afterwards (on Active
    Directory after the hour for which it accepts the password before). Raises :class:`DirectoryError`.
    """
    found = _known_as(directory, computer)
    if found is None and not new:
        known = directory.queue_managers.list(attributes=("computer_name",))
        near = nearest(computer, [one.computer_name for one in known])
        hint = f"did you mean {near!r}? " if near else ""
        raise DirectoryError(
            f"there is no queue manager on a computer {computer!r} in the directory: {hint}Declare the machine and "
            "apply the declaration, or admit it with --new, which makes one"
        )
    own = computer if found is None else found.computer_name
    if (other := _computer_of(folder / SETTINGS_FILE)) and other.casefold() != own.casefold():
        raise DirectoryError(
            f"{folder} has the settings of another node, {other}: name another folder. Nothing was admitted"
        )
    if found is None:
        if fault := _name_fault(computer):
            raise DirectoryError(f"{fault}. Nothing was admitted")
        found = directory.queue_managers.add(QueueManager(computer_name=computer))
    else:
        # A declaration may have made it, before there was anybody to give it to.
        directory.queue_managers.give_to_computer(found)
    # Active Directory wants several kinds of characters, which random text need not have.
    password = f"{secrets.token_urlsafe(32)}aA1-"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_anew(folder / PASSWORD_FILE, f"{password}\n".encode(), 0o600)
        if (authority := directory.connection.settings.ca_file) is not None:
            write_anew(folder / AUTHORITY_FILE, authority.read_bytes(), 0o644)
        text = yaml.safe_dump(_settings(directory, found), sort_keys=False)
        write_anew(folder / SETTINGS_FILE, text.encode("utf-8"), 0o600)
    except OSError as error:
        raise DirectoryError(f"the settings cannot be written to {folder}: {error.strerror}") from error
    directory.queue_managers.set_password(found, password)
    return found


def hash_clear_passwords(connection: LdapConnection) -> int:
    """Hash every computer's password that lies in clear, as early versions stored them; nodes keep theirs.

    Return how many there were. None are seen by an account that may not read passwords, or in Active Directory.
    """
    if connection.dialect.gives_guid:
        return 0
    count = 0
    for entry in connection.search(connection.dialect.contexts.computers, f"({_ATTRIBUTE}=*)", (_ATTRIBUTE,)):
        clear = [bytes(value) for value in entry.attributes.get(_ATTRIBUTE.lower(), ()) if not _SCHEME.match(value)]
        if not clear:
            continue
        changes = [
            Change(ChangeKind.DELETE, _ATTRIBUTE, tuple(clear)),
            Change(ChangeKind.ADD, _ATTRIBUTE, tuple(hashed(_CLEAR_SCHEME.sub(b"", value, 1)) for value in clear)),
        ]
        try:
            connection.modify(entry.dn, changes)
        except (ConditionFailed, ObjectNotFound):
            continue  # changed or deleted meanwhile
        count += 1
    return count


def _known_as(directory: EnterpriseDirectory, computer: str) -> QueueManager | None:
    """The queue manager of a computer, by its computer name or its full DNS name, with or without its last dot."""
    name = computer.strip().removesuffix(".")
    if not name or (found := directory.queue_managers.find(name)) is not None or "." not in name:
        return found if name else None
    filters = [equals("qualified_computer_name", name)]
    known = directory.queue_managers.list(*filters, attributes=("computer_name",))
    return next((directory.queue_managers.find(one.computer_name) for one in known), None)


def _name_fault(computer: str) -> str | None:
    """Why no computer can have this name, or None. Names that a computer has beside its own would make another one."""
    if fault := computer_name_fault(computer):
        return fault
    if "." in computer:
        first = computer.partition(".")[0]
        return f"{computer!r} is a DNS name or an address: name the computer itself, such as {first!r}"
    return None


def _computer_of(file: Path) -> str | None:
    """The computer whose node binds with settings that were written before, or None."""
    try:
        user = yaml.safe_load(file.read_text("utf-8"))["user"]
        return name_of(user) if "=" in user else str(user).partition("$@")[0]
    except (OSError, ValueError, TypeError, LookupError, yaml.YAMLError):
        return None


def _settings(directory: EnterpriseDirectory, node: QueueManager) -> dict[str, Any]:
    """The administrator's way to the servers, and the node's own identity."""
    settings = directory.connection.settings
    computer = parent_of(str(node.full_path))
    if directory.connection.dialect.gives_guid:
        parts = (part.partition("=") for part in split_dn(directory.connection.dialect.contexts.domain))
        user = f"{name_of(computer)}$@{'.'.join(value.lower() for _, _, value in parts)}"
    else:
        user = computer
    named: dict[str, Any] = {
        "servers": list(settings.servers),
        "domain": settings.domain,
        "site": settings.site,
        "nameservers": list(settings.nameservers),
        "root": settings.root,
        "tls_name": settings.tls_name,
        "user": user,
        "password_file": PASSWORD_FILE,
        "ca_file": AUTHORITY_FILE if settings.ca_file is not None else None,
    }
    return {name: value for name, value in named.items() if value}
