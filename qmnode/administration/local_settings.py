"""Addresses and bridges of a machine: those of its document, and those of ``node.yaml``.

The order, here and nowhere else: the document wins. Its addresses hold in place of those of ``node.yaml``, and of a
bridge that both have, its settings do. Other values come from ``node.yaml``; by default there are none.
The document is in the store, and so in backups. Passwords and keys are in files, which it only names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog
from pydantic import TypeAdapter, ValidationError

from qmnode.administration.document_faults import DocumentFault, check_key, in_short
from qmnode.errors import ConfigurationError, MessageQueuingError
from qmnode.settings.bridges import BRIDGE_NAME_RULE, BridgeName, BridgeSettings
from qmnode.settings.mistakes import sentence_of
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import machine_address

if TYPE_CHECKING:
    from qmnode.administration.asker import Asker
    from qmnode.model.queue_manager import QueueManager

log = structlog.get_logger(__name__)

Bridges = Mapping[str, BridgeSettings]
SECTIONS: Final = ("addresses", "bridges")
"""The sections of a document that are here."""
MOST: Final = 1_000
"""Addresses, and bridges, of one document."""
_RECORD: Final = "document"
_TROUBLE: Final = "document"
_NAME: Final[TypeAdapter[str]] = TypeAdapter(BridgeName)
_BRIDGE: Final = "a bridge, such as {direction: out, queue: orders, peer: 'amqps://broker.example', address: orders}"


@dataclass(frozen=True, slots=True)
class DeclaredSettings:
    """The sections of a document; None is one that it does not have, which stays as it is."""

    addresses: tuple[str, ...] | None = None
    bridges: Bridges | None = None


def read_local(plain: object) -> DeclaredSettings:
    """Addresses and bridges of a document. Raises :class:`DocumentFault` for the first mistake."""
    if not isinstance(plain, Mapping):
        return DeclaredSettings()
    addresses, bridges = plain.get("addresses"), plain.get("bridges")
    return DeclaredSettings(
        None if addresses is None else tuple(dict.fromkeys(_addresses(addresses))),
        None if bridges is None else dict(_bridges(bridges)),
    )


def _addresses(listed: object) -> Iterator[str]:
    if isinstance(listed, str) or not isinstance(listed, Sequence):
        raise DocumentFault(("addresses",), "expected a list of IP addresses, such as [192.0.2.7]")
    if len(listed) > MOST:
        raise DocumentFault(("addresses",), f"at most {MOST}, and these are {len(listed)}")
    for number, one in enumerate(listed):
        if not isinstance(one, str) or (address := machine_address(one)) is None:
            sentence = f"{in_short(one)} is no IPv4 or IPv6 address of a machine, such as 192.0.2.7"
            raise DocumentFault(("addresses", number), sentence)
        yield address


def _bridges(named: object) -> Iterator[tuple[str, BridgeSettings]]:
    if not isinstance(named, Mapping):
        raise DocumentFault(("bridges",), f"expected bridges by name: NAME: {_BRIDGE}")
    if len(named) > MOST:
        raise DocumentFault(("bridges",), f"at most {MOST}, and these are {len(named)}")
    for name, plain in named.items():
        try:
            _NAME.validate_python(name, strict=True)
        except ValidationError:
            raise DocumentFault(("bridges", in_short(name)), BRIDGE_NAME_RULE) from None
        yield name, _bridge(name, plain)


def _bridge(name: str, plain: object) -> BridgeSettings:
    place = ("bridges", name)
    if not isinstance(plain, Mapping):
        raise DocumentFault(place, f"expected {_BRIDGE}")
    for key in plain:
        check_key(place, key, BridgeSettings.model_fields)
    try:
        return BridgeSettings.model_validate(dict(plain))
    except ValidationError as error:
        mistake = error.errors(include_url=False, include_input=False)[0]
        raise DocumentFault((*place, *mistake["loc"]), sentence_of(BridgeSettings, mistake)) from None


def _written(bridge: BridgeSettings) -> dict[str, Any]:
    return bridge.model_dump(mode="json", exclude_defaults=True)


class Runner(Protocol):
    """The part of the node that runs bridges."""

    async def prepare_bridges(self) -> None:
        """Load what bridges need. Raises ConfigurationError."""

    async def run_bridges(self, bridges: Bridges) -> None:
        """Let exactly these run. Raises ConfigurationError."""


@dataclass(slots=True)
class _Values:
    addresses: tuple[str, ...] = ()
    bridges: Bridges = field(default_factory=dict)


class LocalSettings:
    """Addresses and bridges of one queue manager, as they are in effect."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager
        self._runner: Runner | None = None
        self._document = self._kept()
        self._settings = _Values()
        self.take(manager.settings)
        manager.local_settings = self.summary

    def take(self, settings: Any) -> None:
        """Take over what ``node.yaml`` has; :meth:`bring_bridges` follows."""
        self._settings = _Values(tuple(settings.addresses), dict(getattr(settings, "bridges", {})))
        self._manager.names.use_addresses(self.addresses)

    async def run_with(self, runner: Runner | None) -> None:
        """Let this run the bridges from now on, and begin; None stops nothing and begins nothing."""
        self._runner = runner
        await self.bring_bridges()

    async def bring_bridges(self) -> None:
        """Let the bridges run that are in effect. Raises ConfigurationError for those of ``node.yaml``."""
        if self._runner is None:
            return
        try:
            await self._runner.run_bridges(self.bridges)
        except ConfigurationError as error:
            if self._settings.bridges:
                raise
            # Not a reason to stay down: with the node down, nobody could apply a better document.
            self._complain(f"its bridges do not run: {error}")

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._document.addresses or self._settings.addresses

    @property
    def bridges(self) -> Bridges:
        return {**self._settings.bridges, **self._document.bridges}

    def summary(self) -> dict[str, Any]:
        """Return the values in effect with their sources, and those of ``node.yaml``: ``NodeStatus.local_settings``."""
        document, settings = self._document, self._settings
        source = "document" if document.addresses else "settings" if settings.addresses else "default"
        return {
            "addresses": list(self.addresses),
            "addresses_source": source,
            "addresses_settings": list(settings.addresses),
            "bridges": {name: "document" if name in document.bridges else "settings" for name in sorted(self.bridges)},
            "bridges_settings": sorted(settings.bridges),
        }

    # Documents

    def show(self, *, everything: bool) -> dict[str, Any]:
        """The sections of the document: what documents made, or what is in effect."""
        bridges = self.bridges if everything else self._document.bridges
        addresses = filter(machine_address, self.addresses) if everything else self._document.addresses
        written = {name: _written(bridge) for name, bridge in sorted(bridges.items())}
        return {"addresses": list(addresses), "bridges": written}

    def steps(self, wanted: DeclaredSettings) -> list[dict[str, Any]]:
        """The changes that make this true."""
        found = []
        present = self._document
        if wanted.addresses is not None and wanted.addresses != present.addresses:
            action = "create" if not present.addresses else "change" if wanted.addresses else "delete"
            change = {"from": list(present.addresses) or None, "to": list(wanted.addresses) or None}
            found.append(_step(action, "", {"addresses": change}))
        if wanted.bridges is not None:
            for name in sorted({*present.bridges, *wanted.bridges}):
                before, after = present.bridges.get(name), wanted.bridges.get(name)
                if before == after:
                    continue
                action = "create" if before is None else "change" if after is not None else "delete"
                found.append(_step(action, name, {} if after is None else _changes(before, after)))
        return found

    async def check(self, wanted: DeclaredSettings, asker: Asker) -> None:
        """Refuse what the caller may not ask for, or cannot run here. MQ_ERROR_ACCESS_DENIED, MQ_ERROR_..."""
        for refused in (await self._refusals(wanted, asker)).values():
            raise refused

    async def tell_refusals(self, steps: list[dict[str, Any]], wanted: DeclaredSettings, asker: Asker) -> None:
        """Put into planned steps why they would be refused."""
        refusals = await self._refusals(wanted, asker)
        for step in steps:
            if (refused := refusals.get(step["bridge"])) is not None:
                step["reason"] = f"will be refused: {refused.sentence}"

    async def _refusals(self, wanted: DeclaredSettings, asker: Asker) -> dict[str, MessageQueuingError]:
        """Return by bridge why it is refused."""
        found: dict[str, MessageQueuingError] = {}
        if not wanted.bridges:
            return found
        if self._runner is not None:
            try:
                await self._runner.prepare_bridges()
            except ConfigurationError as error:
                refused = MessageQueuingError(ErrorCode.MQ_ERROR_UNSUPPORTED_OPERATION, str(error))
                found = dict.fromkeys(wanted.bridges, refused)
        trusted = {_login(bridge) for bridge in self.bridges.values()}
        for name, bridge in wanted.bridges.items():
            if (bridge.user or bridge.certificate) and not asker.owns_files and _login(bridge) not in trusted:
                found[name] = MessageQueuingError(
                    ErrorCode.MQ_ERROR_ACCESS_DENIED,
                    f"bridge {name}: root and the account of the node alone may log in to a peer with files for the "
                    f"first time, and {asker.name} is neither: run 'qmnode apply' as root there, or rollout.yml",
                )
        return found

    async def apply(self, wanted: DeclaredSettings) -> None:
        """Store the sections that are there, and let them take effect."""
        now = _Values(
            self._document.addresses if wanted.addresses is None else wanted.addresses,
            self._document.bridges if wanted.bridges is None else wanted.bridges,
        )
        if now == self._document:
            return
        written = {name: _written(bridge) for name, bridge in now.bridges.items()}
        record = {"addresses": now.addresses, "bridges": written}
        self._manager.store.put_meta(_RECORD, json.dumps(record).encode())
        await self._manager.store.durable()
        self._document = now
        self._manager.troubles.pop(_TROUBLE, None)
        self._manager.names.use_addresses(self.addresses)
        await self.bring_bridges()

    def _kept(self) -> _Values:
        """Return the values of the last document, without those of another release that this one does not know."""
        record = self._manager.store.get_meta(_RECORD)
        if record is None:
            return _Values()
        bridges: dict[str, BridgeSettings] = {}
        try:
            plain = json.loads(record)
            addresses = tuple(_addresses(plain["addresses"]))
        except (ValueError, KeyError, DocumentFault) as error:
            self._complain(f"the addresses and bridges of the last one cannot be read: {error}")
            return _Values()
        for name, one in plain.get("bridges", {}).items():
            try:
                bridges[name] = _bridge(name, one)
            except DocumentFault as fault:
                self._complain(str(fault))
        return _Values(addresses, bridges)

    def _complain(self, sentence: str) -> None:
        self._manager.troubles[_TROUBLE] = f"{sentence}. Apply the document of the machine again"
        log.error("the document of the machine does not hold", reason=sentence)


def _login(bridge: BridgeSettings) -> tuple[Any, ...]:
    """To whom which password or certificate is shown, and how the peer proves who it is."""
    secret = bridge.password_secret
    stored = None if secret is None else secret.model_dump_json()
    return (
        bridge.peer, bridge.user, bridge.password_file, stored, bridge.authorities,
        bridge.certificate, bridge.private_key,
    )  # fmt: skip


def _changes(before: BridgeSettings | None, after: BridgeSettings) -> dict[str, Any]:
    old, new = {} if before is None else _written(before), _written(after)
    names = [name for name in BridgeSettings.model_fields if old.get(name) != new.get(name)]
    return {name: {"from": old.get(name), "to": new.get(name)} for name in names}


def _step(action: str, bridge: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The change of a bridge, or of the addresses."""
    return {"action": action, "queue": "", "bridge": bridge, "changes": changes, "messages": 0, "reason": None}
