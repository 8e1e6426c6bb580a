"""Publish public keys in the directory: mSMQEncryptKey and mSMQSignKey of each queue manager, as MQDSPUBLICKEYS.

A sender picks a key by its provider's name (MS-MQQB 3.1.7.1.5) and the wire carries no key id, so a new key replaces
its provider's old key. The list is changed by compare and set, so that two writers never undo each other's change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mqenterprise.directory.connection import swap
from mqenterprise.directory.errors import ObjectNotFound
from mqenterprise.keys.settings import KeyRotationError
from mqenterprise.topology.problems import did_you_mean
from qmnode.security.key_stores import KeyPair, KeyPurpose, KeyState
from qmnode.security.published_keys import public_key_list
from qmnode.security.rsa_keys import fingerprint_of, public_key_from_wire
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import Guid
from qmnode.structures.public_keys import MqdsPublicKey, MqdsPublicKeys

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from mqenterprise.directory.open_directory import EnterpriseDirectory

ATTRIBUTES: Final = {KeyPurpose.ENCRYPTION: "mSMQEncryptKey", KeyPurpose.SIGNING: "mSMQSignKey"}
"""MS-MQDSSM 3.1.6.1.1.2, and the attribute of the schema for PublicSigningKeyList (MS-MQDMPR 3.1.1.1)."""
_LARGEST_KEY: Final = 16_384
_NODE_FIELDS: Final = ("identifier", "site_identifier_list", "foreign_system", "computer_name")


@dataclass(frozen=True, slots=True)
class Node:
    """A queue manager whose keys this project manages."""

    computer_name: str
    identifier: Guid
    full_path: str
    sites: tuple[Guid, ...] = ()


@dataclass(frozen=True, slots=True)
class Shown:
    """A node's published keys: the lists as the directory holds them, and the fingerprints in them."""

    lists: dict[KeyPurpose, bytes | None]
    fingerprints: frozenset[str] = field(default=frozenset())

    @classmethod
    def of(cls, lists: dict[KeyPurpose, bytes | None]) -> Shown:
        """Read the attributes. A key that cannot be read has no fingerprint here."""
        keys = (entry for encoded in lists.values() for entry in _entries(encoded))
        return cls(lists, frozenset(name for entry in keys if (name := _fingerprint(entry)) is not None))

    def with_pairs(self, pairs: Iterable[KeyPair], purpose: KeyPurpose) -> bytes:
        """Return the list with these pairs in their providers' places. The keys of other providers stay as they are."""
        current = [pair for pair in pairs if pair.purpose is purpose and pair.state is KeyState.CURRENT]
        new = {entry.provider_name: entry for entry in MqdsPublicKeys.parse(public_key_list(current, purpose)).keys}
        kept = [new.pop(entry.provider_name, entry) for entry in _entries(self.lists.get(purpose))]
        return MqdsPublicKeys(keys=(*kept, *new.values())).write()


class Publication:
    """The published keys in one directory. Calls block; several threads may make them."""

    def __init__(self, directory: EnterpriseDirectory) -> None:
        self._directory = directory

    def longest_time_to_reach_queue(self) -> float:
        """The enterprise's default time to live in seconds, which bounds each message that sets no other time."""
        return float(self._directory.enterprise().default_time_to_live)

    def nodes(self, *, site: str | None = None, computers: Collection[str] = ()) -> list[Node]:
        """Return the queue managers of a site, those named, or all, without foreign ones. Raises KeyRotationError."""
        within = None if site is None else self._site(site)
        wanted = {name.casefold() for name in computers}
        nodes = [
            Node(each.computer_name, each.identifier, each.full_path, each.site_identifier_list)
            for each in self._directory.queue_managers.list(attributes=_NODE_FIELDS)
            if each.identifier is not None
            and each.full_path is not None
            and not each.foreign_system
            and (within is None or within in each.site_identifier_list)
        ]
        found = [node for node in nodes if not wanted or node.computer_name.casefold() in wanted]
        missing = sorted(wanted - {node.computer_name.casefold() for node in found})
        if missing:
            where = "the enterprise" if site is None else f"site {site}"
            near = did_you_mean(missing[0], (node.computer_name for node in nodes))
            raise KeyRotationError(f"no queue manager of {where} is named {', '.join(missing)}{near}")
        return sorted(found, key=lambda each: each.computer_name.casefold())

    def node(self, identifier: Guid, computer_name: str) -> Node:
        """Return the queue manager with this identifier. Raises :class:`KeyRotationError` when there is none."""
        try:
            found = self._directory.queue_managers.get(identifier, _NODE_FIELDS)
        except ObjectNotFound:
            raise KeyRotationError(
                f"{computer_name} is not in the directory: 'mqenterprise directory admit' puts it there"
            ) from None
        assert found.full_path is not None
        return Node(found.computer_name, identifier, found.full_path, found.site_identifier_list)

    def _site(self, name: str) -> Guid:
        found = self._directory.sites.find(name)
        if found is None or found.identifier is None:
            sites = self._directory.sites.list(attributes=("name",))
            raise KeyRotationError(f"there is no site named {name}{did_you_mean(name, (site.name for site in sites))}")
        return found.identifier

    def read(self, node: Node) -> Shown:
        """Read the node's published keys. Raises :class:`KeyRotationError` when the node was deleted."""
        try:
            entry = self._directory.connection.read(node.full_path, tuple(ATTRIBUTES.values()))
        except ObjectNotFound:
            raise KeyRotationError(f"{node.computer_name} is not in the directory any more") from None
        return Shown.of({purpose: entry.first(name) for purpose, name in ATTRIBUTES.items()})

    def replace(self, node: Node, shown: Shown, lists: dict[KeyPurpose, bytes]) -> bool:
        """Replace the lists that were read by these. Return False when the directory has changed since."""
        values = {ATTRIBUTES[purpose]: (shown.lists.get(purpose), encoded) for purpose, encoded in lists.items()}
        try:
            return swap(self._directory.connection, node.full_path, values)
        except ObjectNotFound:
            raise KeyRotationError(f"{node.computer_name} is not in the directory any more") from None


def _entries(encoded: bytes | None) -> tuple[MqdsPublicKey, ...]:
    """Return the entries of a list. A list that cannot be read has none: no sender can read it either."""
    try:
        return MqdsPublicKeys.parse(encoded).keys if encoded else ()
    except PacketError:
        return ()


def _fingerprint(entry: MqdsPublicKey) -> str | None:
    try:
        key = entry.public_key.key
        return fingerprint_of(public_key_from_wire(key.modulus, key.public_exponent, _LARGEST_KEY))
    except (PacketError, ValueError):
        return None
