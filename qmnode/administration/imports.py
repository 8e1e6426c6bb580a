"""Importing exported messages: each is sent anew, once for each target, whatever is imported again."""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from qmnode.administration.promises import QueueRole
from qmnode.administration.transfers import Targets
from qmnode.administration.turns import Pace
from qmnode.errors import MessageQueuingError
from qmnode.model.message import Message
from qmnode.model.queue_manager import QueueManager
from qmnode.model.stored_message import message_from_packet
from qmnode.storage.store import Store
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.errors import PacketError

AT_ONCE: Final = 500
_IMPORTED: Final = "imported/"


class Imports:
    """Imports into one queue manager. The store remembers each import."""

    def __init__(self, manager: QueueManager, store: Store) -> None:
        self._manager = manager
        self._store = store

    async def take(
        self,
        items: Sequence[dict[str, Any]],
        transactional: bool | None,
        *,
        again: bool,
        dry_run: bool,
        caller: object,
    ) -> list[dict[str, Any]]:
        """Send messages, each to its ``target``; the outcome for each. ``again`` sends also those of before."""
        results, pace = [], Pace()
        for item in items:
            results.append(_read(item))
            await pace.rest()
        targets = Targets(self._manager, caller, transactional)
        try:
            for name in dict.fromkeys(str(item.get("target", "")) for item in items):
                await targets.open(name)
            self._store.make_visible()  # all reads come before the first change
            known = self._marks_of(items, results)
            self._store.check()
            for index, (item, result) in enumerate(zip(items, results, strict=True)):
                if "message" in result:
                    mark, before = known[index]
                    results[index] = self._take_one(
                        targets, item, result["message"], mark, known=before and not again, dry_run=dry_run
                    )
        finally:
            await targets.close()
        await self._store.durable()
        return results

    def _marks_of(self, items: Sequence[dict[str, Any]], results: list[dict[str, Any]]) -> dict[int, tuple[str, bool]]:
        """The record of each import, and whether it is there or is that of an earlier message of these."""
        marks: dict[int, tuple[str, bool]] = {}
        seen: set[str] = set()
        for index, (item, result) in enumerate(zip(items, results, strict=True)):
            if "message" in result:
                target = hashlib.sha256(str(item["target"]).upper().encode("utf-8", "replace")).hexdigest()[:16]
                mark = f"{_IMPORTED}{target}/{result['message'].identifier.hex()}"
                marks[index] = mark, mark in seen or self._store.get_meta(mark) is not None
                seen.add(mark)
        return marks

    def _take_one(
        self, targets: Targets, item: dict[str, Any], message: Message, mark: str, *, known: bool, dry_run: bool
    ) -> dict[str, Any]:
        target = targets.get(str(item["target"]))
        if known:
            return {"result": "known", "detail": "it was imported into this queue before"}
        try:
            assert target is not None
            if target.error is not None:
                raise target.error
            if target.kind in (QueueRole.JOURNAL, QueueRole.DEAD_LETTERS):
                raise MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED, f"nothing is put into a {target.kind}")
            if dry_run:
                return {"result": "would be sent", "target": target.name}
            changes = {"message_class": MessageClass.MQMSG_CLASS_NORMAL} if item.get("dead_letter") else {}
            outcome = targets.send(target, message, **changes)
        except (MessageQueuingError, ValueError) as error:
            sentence = error.sentence if isinstance(error, MessageQueuingError) else str(error)
            return {"result": "refused", "detail": sentence}
        self._store.operations_recorded()
        self._store.put_meta(mark, b"")
        return {"result": "sent", "target": outcome.target, "identifier": outcome.identifier.hex()}


def _read(item: dict[str, Any]) -> dict[str, Any]:
    """The message of an item, or the result of a refusal."""
    message = _message(item)
    return {"result": "refused", "detail": message} if isinstance(message, str) else {"message": message}


def _message(item: dict[str, Any]) -> Message | str:
    packet, target = item.get("packet"), item.get("target")
    if not isinstance(packet, bytes) or not isinstance(target, str) or not 0 < len(target) <= 512:
        return "an imported message has a packet and the name of a queue"
    try:
        message = message_from_packet(packet)
        if not message.identifier or message.unreadable:
            return f"the packet cannot be read: {message.unreadable}"
    except (PacketError, ValueError) as error:
        return f"the packet cannot be read: {error}"
    return message
