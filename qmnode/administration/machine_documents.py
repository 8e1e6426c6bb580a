"""The document of a machine: what the directory does not hold, as it is wanted, and how the node makes it true.

A document has the private queues of one machine. Properties that it omits have their defaults; ``access`` and ``owner``
are left alone when they are omitted. Queues that a document made carry a mark (``declared``); no others are deleted.
Applying a document again changes nothing, so it may be stopped and run again at any point.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from qmnode.administration.access_control import TRUSTEES, check_denied, owner_of, trustee
from qmnode.errors import MessageQueuingError
from qmnode.model.api import QueueType
from qmnode.objects.rows import QUOTA, Changes, Door, Property
from qmnode.objects.table import QUEUE
from qmnode.settings.sizes import quota_value
from qmnode.structures.access_masks import QUEUE_RIGHTS, names_of_rights
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.errors import PacketError
from qmnode.structures.names import PathName, QueueNameError
from qmnode.structures.security_descriptor import AccessEntry, AceType, SecurityDescriptor, allow, deny
from qmnode.structures.text import nearest

if TYPE_CHECKING:
    from qmnode.model.queue import Queue
    from qmnode.model.queue_manager import QueueManager
    from qmnode.structures.sid import Sid

MARK: Final = "declared"
PROPERTIES: Final[Mapping[str, Property]] = {
    row.name: row for row in QUEUE.at(Door.NODE) if row.is_written and not row.public and row.name != MARK
}
"""The properties of a private queue that a document may have."""
MOST_QUEUES: Final = 20_000
_KEYS: Final = ("name", *PROPERTIES, "access", "owner")
_ENTRY_KEYS: Final = ("to", "allow", "deny")
_IN_ONE_TURN: Final = 50
"""Queues that are compared before others may go on."""
Access = tuple[tuple["Sid", bool, int], ...]
"""The entries of an access list: whose, whether they deny, and the rights. Denials come first."""


class DocumentFault(MessageQueuingError):
    """A mistake in a document; ``place`` leads to it, such as ``("queues", 3, "quota")``."""

    def __init__(self, place: tuple[str | int, ...], sentence: str) -> None:
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).removeprefix(".")
        super().__init__(ErrorCode.MQ_ERROR_INVALID_PARAMETER, f"{where or 'the document'}: {sentence}")
        self.place, self.sentence_alone = place, sentence


@dataclass(frozen=True, slots=True)
class WantedQueue:
    """A private queue as a document wants it."""

    name: str
    properties: Mapping[str, Any]
    """Values of the model, of every property."""
    access: Access | None
    owner: Sid | None


def read_document(plain: object) -> list[WantedQueue]:
    """The queues of a document. Raises :class:`DocumentFault` for the first mistake."""
    if not isinstance(plain, Mapping):
        raise DocumentFault((), "expected names with values, such as queues: [{name: orders}]")
    for key in plain:
        _check_key((), key, ("queues",))
    listed = plain.get("queues") or ()
    if isinstance(listed, str) or not isinstance(listed, Sequence):
        raise DocumentFault(("queues",), "expected a list of queues")
    if len(listed) > MOST_QUEUES:
        raise DocumentFault(("queues",), f"at most {MOST_QUEUES}, and these are {len(listed)}")
    found: dict[str, int] = {}
    wanted = []
    for number, one in enumerate(listed):
        queue = _queue(("queues", number), one)
        first = found.setdefault(queue.name.upper(), number)
        if first != number:
            raise DocumentFault(("queues", number, "name"), f"{queue.name!r} is there already, as queues[{first}]")
        wanted.append(queue)
    return wanted


def _check_key(place: tuple[str | int, ...], key: object, known: Sequence[str]) -> None:
    if key in known:
        return
    near = nearest(str(key), known)
    hint = f"did you mean {near}?" if near else f"it has {', '.join(known)}"
    raise DocumentFault((*place, str(key)), f"unknown: {hint}")


def _queue(place: tuple[str | int, ...], plain: object) -> WantedQueue:
    if not isinstance(plain, Mapping):
        raise DocumentFault(place, "expected a queue, such as {name: orders}")
    for key in plain:
        row = QUEUE.called(key) if isinstance(key, str) else None
        if row is not None and row.public:
            raise DocumentFault((*place, str(key)), "only public queues have it, and the directory holds these")
        if row is not None and row.name in PROPERTIES and key != row.name:
            raise DocumentFault((*place, str(key)), f"its name is {row.name}")
        _check_key(place, key, _KEYS)
    if "name" not in plain:
        raise DocumentFault(place, "a queue needs its name")
    access, owner = plain.get("access"), plain.get("owner")
    return WantedQueue(
        name=_name((*place, "name"), plain["name"]),
        properties={
            name: _value((*place, name), row, plain[name]) if name in plain else row.default
            for name, row in PROPERTIES.items()
        },
        access=None if access is None else _access((*place, "access"), access),
        owner=None if owner is None else _account((*place, "owner"), owner, owner=True),
    )


def _name(place: tuple[str | int, ...], name: object) -> str:
    if not isinstance(name, str):
        raise DocumentFault(place, f"{name!r:.80} is no text")
    if name.lower().startswith(("private$\\", ".\\private$\\")):
        raise DocumentFault(place, f"all are private queues: write {name.rpartition(chr(92))[2]!r}")
    if ";" in name:
        raise DocumentFault(place, f"{name!r} has a subqueue, which comes with its first message: name the queue alone")
    try:
        path = PathName.parse(f".\\private$\\{name}")
    except QueueNameError as error:
        raise DocumentFault(place, error.sentence) from None
    if path.queue != name:
        raise DocumentFault(place, f"{name!r} is no name of a queue")
    return name


def _value(place: tuple[str | int, ...], row: Property, written: object) -> Any:
    form = row.form
    try:
        if form is QUOTA:
            written = quota_value(written)
        elif form.nullable and isinstance(written, str) and written.lower() == "none":
            written = None
        expected = (form.type,) if not form.nullable else (form.type, type(None))
        if not isinstance(written, expected) or (form.type is int and isinstance(written, bool)):
            raise ValueError(f"expected {_words(row)}")
        if form.choices and written not in form.choices:
            near = nearest(str(written), form.choices)
            raise ValueError(f"did you mean {near}?" if near else f"expected one of {', '.join(form.choices)}")
        value = form.read(written)
    except (ValueError, KeyError) as error:
        sentence = str(error)
        raise DocumentFault(place, sentence if repr(written) in sentence else f"{written!r:.80}: {sentence}") from None
    fault = row.fault(value, public=False)
    if fault:
        raise DocumentFault(place, fault.partition("=")[2])
    return value


def _words(row: Property) -> str:
    return f"one of {', '.join(row.form.choices)}" if row.form.choices else row.form.words


def _account(place: tuple[str | int, ...], who: object, *, owner: bool = False) -> Sid:
    if not isinstance(who, str) or not who:
        raise DocumentFault(place, f"{who!r:.80} names nobody: write user:alice, group:ops, everyone or S-1-5-21-...")
    try:
        return owner_of(who) if owner else trustee(who)
    except MessageQueuingError as error:
        raise DocumentFault(place, error.sentence) from None


def _access(place: tuple[str | int, ...], entries: object) -> Access:
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        raise DocumentFault(place, "expected a list of entries, such as {to: everyone, allow: [send]}")
    masks: dict[tuple[Sid, bool], int] = {}
    for number, entry in enumerate(entries):
        where = (*place, number)
        if not isinstance(entry, Mapping):
            raise DocumentFault(where, "expected an entry, such as {to: everyone, allow: [send]}")
        for key in entry:
            _check_key(where, key, _ENTRY_KEYS)
        who = _account((*where, "to"), entry.get("to"))
        for verb in ("allow", "deny"):
            rights = entry.get(verb) or ()
            if isinstance(rights, str) or not isinstance(rights, Sequence):
                raise DocumentFault((*where, verb), "expected a list of rights")
            for right in rights:
                _check_key((*where, verb), right, tuple(QUEUE_RIGHTS))
                key = who, verb == "deny"
                masks[key] = masks.get(key, 0) | int(QUEUE_RIGHTS[right])
    return _ordered((who, denied, mask) for (who, denied), mask in masks.items())


def _ordered(entries: Iterable[tuple[Sid, bool, int]]) -> Access:
    return tuple(sorted(entries, key=lambda entry: (not entry[1], str(entry[0]))))


# Queues as they are


def _present_access(security: bytes) -> Access | None:
    """The list of a descriptor; None where there is none, or one that has entries of other kinds."""
    try:
        descriptor = SecurityDescriptor.parse(security)
    except PacketError:
        return None
    if descriptor.dacl is None:
        return None
    masks: dict[tuple[Sid, bool], int] = {}
    for ace in descriptor.dacl.aces:
        plain = ace.ace_type in (AceType.ACCESS_ALLOWED, AceType.ACCESS_DENIED) and not ace.ace_flags
        if not plain or not isinstance(ace.entry, AccessEntry) or ace.entry.application_data:
            return None
        key = ace.entry.sid, ace.ace_type == AceType.ACCESS_DENIED
        masks[key] = masks.get(key, 0) | ace.entry.mask
    return _ordered((who, denied, mask) for (who, denied), mask in masks.items())


def _shown_access(access: Access | None, names: Mapping[str, str | None]) -> list[dict[str, Any]] | None:
    if access is None:
        return None
    entries: dict[Sid, dict[str, Any]] = {}
    for who, denied, mask in access:
        entry = entries.setdefault(who, {"to": _shown_account(who, names)})
        entry["deny" if denied else "allow"] = list(names_of_rights(mask))
    return list(entries.values())


def _shown_account(who: Sid, names: Mapping[str, str | None]) -> str:
    """A name that a document may have for it: those of a directory are known nowhere else."""
    everywhere = {sid: name for name, sid in TRUSTEES.items()}
    name = names.get(str(who)) or ""
    return everywhere.get(who) or (name if name.startswith(("user:", "group:")) else str(who))


def _security(queue: WantedQueue, present: bytes) -> bytes:
    """The descriptor of a queue with the wanted list and owner; the rest stays as it is."""
    descriptor = SecurityDescriptor.parse(present) if present else SecurityDescriptor()
    if queue.owner is not None:
        descriptor = SecurityDescriptor(
            owner=queue.owner, group=descriptor.group or queue.owner, dacl=descriptor.dacl, sacl=descriptor.sacl
        )
    if queue.access is None:
        return descriptor.write()
    return descriptor.with_dacl(*(deny(who, m) if denied else allow(who, m) for who, denied, m in queue.access)).write()


# Steps to what is wanted


@dataclass(frozen=True, slots=True)
class _Step:
    action: str
    """``create``, ``change``, ``delete``, or ``keep`` for what would be deleted and is not."""
    name: str
    changes: Mapping[str, tuple[Any, Any]]
    """By name of the property, the written values before and after."""
    settings: Mapping[str, Any]
    """The values of the model that are set at the queue."""
    reason: str = ""
    """Why a queue is kept."""
    messages: int = 0

    def plain(self) -> dict[str, Any]:
        changes = {name: {"from": before, "to": after} for name, (before, after) in self.changes.items()}
        return {
            "action": self.action,
            "queue": self.name,
            "changes": changes,
            "messages": self.messages,
            "reason": self.reason or None,
        }


class MachineDocuments:
    """Documents of one queue manager."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager
        self._lock = asyncio.Lock()

    async def apply(
        self, plain: object, *, prune: bool, with_messages: bool, dry_run: bool, caller: object
    ) -> dict[str, Any]:
        """Make a document true, or say what that would change. Nothing is begun if something in it is wrong."""
        wanted = read_document(plain)
        if prune and (not isinstance(plain, Mapping) or plain.get("queues") is None):
            raise DocumentFault((), "it has no queues, and prune would delete all: write queues: [] if that is meant")
        async with self._lock:
            steps = await self._plan(wanted, prune=prune, with_messages=with_messages)
            if not dry_run:
                steps = [await self._do(step, caller, with_messages=with_messages) for step in steps]
        unchanged = len(wanted) - sum(step.action in ("create", "change") for step in steps)
        return {"steps": [step.plain() for step in steps], "unchanged": unchanged, "dry_run": dry_run}

    async def show(self, *, everything: bool) -> dict[str, Any]:
        """The document of the private queues that documents made, or of all."""
        queues = []
        chosen = [queue for queue in self._private_queues() if everything or queue.declared]
        names = await self._names([], chosen)
        for number, queue in enumerate(chosen):
            if number % _IN_ONE_TURN == 0:
                await asyncio.sleep(0)
            queues.append(self._shown(queue, names))
        return {"queues": queues}

    def _shown(self, queue: Queue, names: Mapping[str, str | None]) -> dict[str, Any]:
        shown: dict[str, Any] = {"name": _own_name(queue)}
        for name, row in PROPERTIES.items():
            value = getattr(queue, name)
            if value != row.default:
                shown[name] = row.form.write(value)
        access = _shown_access(_present_access(queue.security), names)
        return shown if access is None else shown | {"access": access}

    async def _names(self, wanted: Sequence[WantedQueue], present: Iterable[Queue]) -> dict[str, str | None]:
        """The names of all accounts in access lists."""
        lists = [*(one.access for one in wanted), *(_present_access(queue.security) for queue in present)]
        accounts = {str(who) for access in lists for who, _, _ in access or ()}
        accounts |= {str(one.owner) for one in wanted if one.owner is not None}
        return await self._manager.account_names(sorted(accounts)) if accounts else {}

    def _private_queues(self) -> list[Queue]:
        found = self._manager.queue_collection.values()
        private = [one for one in found if one.queue_type is QueueType.PRIVATE and one.parent is None]
        return sorted(private, key=lambda queue: queue.pathname.upper())

    async def _plan(self, wanted: list[WantedQueue], *, prune: bool, with_messages: bool) -> list[_Step]:
        present = {_own_name(queue).upper(): queue for queue in self._private_queues()}
        named = {one.name.upper() for one in wanted}
        names = await self._names(wanted, (queue for name, queue in present.items() if name in named))
        steps = []
        for number, one in enumerate(wanted):
            if number % _IN_ONE_TURN == 0:
                await asyncio.sleep(0)
            for who, denied, _ in one.access or ():
                if denied:
                    await check_denied(self._manager, str(who), who)
            queue = present.pop(one.name.upper(), None)
            step = self._created(one, names) if queue is None else self._changed(one, queue, names)
            if step is not None:
                steps.append(step)
        if not prune:
            return steps
        for queue in present.values():
            if not queue.declared:
                continue
            steps.append(_deletion(queue, with_messages=with_messages))
        return steps

    def _created(self, one: WantedQueue, names: Mapping[str, str | None]) -> _Step:
        changes = {
            name: (None, row.form.write(one.properties[name]))
            for name, row in PROPERTIES.items()
            if one.properties[name] != row.default
        }
        settings: dict[str, Any] = {**one.properties, MARK: True}
        if one.access is not None or one.owner is not None:
            settings["security"] = _security(one, b"")
        if one.access is not None:
            changes["access"] = (None, _shown_access(one.access, names))
        if one.owner is not None:
            changes["owner"] = (None, _shown_account(one.owner, names))
        return _Step("create", one.name, changes, settings)

    def _changed(self, one: WantedQueue, queue: Queue, names: Mapping[str, str | None]) -> _Step | None:
        changes: dict[str, tuple[Any, Any]] = {}
        settings: dict[str, Any] = {}
        for name, row in PROPERTIES.items():
            before, after = getattr(queue, name), one.properties[name]
            if before == after:
                continue
            if row.changes is Changes.ONCE:
                raise MessageQueuingError(
                    ErrorCode.MQ_ERROR_PROPERTY_NOTALLOWED,
                    f"{one.name}: {name} is {row.form.write(before)!r} and cannot change: take another name, or delete "
                    "the queue first. Nothing was changed",
                )
            changes[name] = row.form.write(before), row.form.write(after)
            settings[name] = after
        security = queue.security
        access = _present_access(security)
        owner = SecurityDescriptor.parse(security).owner if security else None
        if one.access is not None and one.access != access:
            changes["access"] = _shown_access(access, names), _shown_access(one.access, names)
        if one.owner is not None and one.owner != owner:
            changes["owner"] = None if owner is None else str(owner), _shown_account(one.owner, names)
        if "access" in changes or "owner" in changes:
            settings["security"] = _security(one, security)
        return _Step("change", one.name, changes, settings) if changes else None

    async def _do(self, step: _Step, caller: object, *, with_messages: bool) -> _Step:
        """Take a step, and return what was done: a queue to delete may have got messages since the plan."""
        name = f".\\private$\\{step.name}"
        if step.action == "create":
            await self._manager.create_queue(name, caller=caller, **step.settings)
        elif step.action == "change":
            await self._manager.set_queue(name, **step.settings)
        elif step.action == "delete":
            queue = next((one for one in self._private_queues() if _own_name(one) == step.name), None)
            if queue is None:
                return step
            step = _deletion(queue, with_messages=with_messages)
            if step.action == "delete":
                await self._manager.delete_queue(name)
        return step


def _deletion(queue: Queue, *, with_messages: bool) -> _Step:
    """The step for a queue that is wanted no more."""
    journal = queue.journal_queue
    held = queue.message_count + (0 if journal is None else journal.message_count)
    held += sum(one.message_count for one in queue.subqueues.values())
    if not held or with_messages:
        return _Step("delete", _own_name(queue), {}, {}, messages=held)
    reason = f"it holds {held} messages" if held != 1 else "it holds 1 message"
    return _Step("keep", _own_name(queue), {}, {}, reason, held)


def _own_name(queue: Queue) -> str:
    return queue.pathname.rpartition("\\")[2]
