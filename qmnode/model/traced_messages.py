"""Messages that are sent as traced ones, by their own wish or by a rule of the settings."""

from copy import copy
from fnmatch import fnmatchcase
from itertools import count
from typing import Final

from qmnode.model.message import Message
from qmnode.settings.node import TraceRule, TracingSettings
from qmnode.structures.guid import ZERO_GUID, Guid, guid_from_text

_PREFIX: Final = "PUBLIC="


class _Rule:
    """A rule, and how many messages have fitted it since the start."""

    def __init__(self, rule: TraceRule) -> None:
        self.queue, self.label = rule.queue.casefold(), rule.label.casefold()
        self._one_in = rule.one_in
        self._fitted = count()

    def takes(self) -> bool:
        """Count a message that fits. Return whether it is one of those to trace."""
        return next(self._fitted) % self._one_in == 0


class Traced:
    """The rules of one queue manager."""

    def __init__(self, settings: TracingSettings) -> None:
        name = settings.report_queue
        self.report_queue: Guid = guid_from_text(name[len(_PREFIX) :]) if name else ZERO_GUID
        """The queue for reports on messages that name none; null without one."""
        self._rules = [_Rule(rule) for rule in settings.rules]

    def rules_of(self, *names: str) -> "list[_Rule]":
        """The rules for a queue that has these names; usually none."""
        folded = [name.casefold() for name in names]
        return [rule for rule in self._rules if any(fnmatchcase(name, rule.queue) for name in folded)]

    def request(self, message: Message, rules: "list[_Rule]") -> Message:
        """The message, or a copy that asks for reports if a rule says so, or with the queue for reports it lacks."""
        if message.tracing_requested:
            if message.tracing_queue_identifier != ZERO_GUID or self.report_queue == ZERO_GUID:
                return message
        else:
            label = message.label.casefold()
            rule = next((one for one in rules if fnmatchcase(label, one.label)), None)
            if rule is None or not rule.takes():
                return message
        traced = copy(message)
        traced.tracing_requested, traced.tracing_queue_identifier = True, self.report_queue
        return traced
