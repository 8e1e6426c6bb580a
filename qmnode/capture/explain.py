"""A captured packet explained: its kind, its decode tree with meanings, and every MUST that it breaks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from qmnode.capture.conversations import Conversations
from qmnode.capture.meanings import explain_values
from qmnode.capture.packetizer import is_ping
from qmnode.capture.read_files import Captured, Carrier
from qmnode.structures.conformance import NOTES, RULES, Finding, Kind, Rule, Seen, look_at, treatment_of_value
from qmnode.structures.errors import PacketError
from qmnode.structures.layout import Annotation, Structure, annotate
from qmnode.structures.packets import Ping, read_packet


@dataclass(slots=True)
class Explained:
    """A captured packet with everything known about it."""

    captured: Captured
    kind: Kind | None = None
    """None if the bytes are no packet."""
    packet: Any = None
    tree: Annotation | None = None
    error: PacketError | None = None
    """Why the bytes are no packet."""
    findings: list[Finding] = field(default_factory=list)
    """The rules that the sender broke. An error or damage is not included."""
    notes: list[Finding] = field(default_factory=list)
    """Unusual content that breaks no MUST."""

    @property
    def error_section(self) -> str:
        """The section of the structure with the error; empty without an error."""
        return _sections().get(self.error.structure, "") if self.error else ""

    @property
    def broken(self) -> bool:
        """Whether the sender broke a rule."""
        return self.error is not None or bool(self.findings)


@cache
def _sections() -> dict[str, str]:
    """The section of each structure, by its name in errors."""
    return {kind.PLAN.name: kind.section() for kind in Structure.__subclasses__()}


class Explainer:
    """Explains the packets of one capture, in order: some rules depend on earlier packets."""

    def __init__(self) -> None:
        self._conversations = Conversations()

    def explain(self, captured: Captured) -> Explained:
        """Explain one packet. Never raises for its contents."""
        explained = Explained(captured)
        if captured.lost:
            self._conversations.damaged(captured.route)
            return explained
        try:
            explained.packet = _parse(captured)
        except PacketError as error:
            explained.error = error
            self._conversations.damaged(captured.route)
            return explained
        seen = look_at(explained.packet, captured.route.from_client if captured.route else None)
        explained.kind = seen.kind
        explained.tree = tree = _tree(seen)
        explained.findings = [
            *_value_findings(tree),
            *check(seen, RULES, tree),
            *self._conversations.check(seen, captured.route),
        ]
        explained.notes = [note._replace(handling="") for note in check(seen, NOTES, tree)]
        return explained


def _parse(captured: Captured) -> Any:
    data = captured.data
    if captured.carrier == Carrier.UDP or (captured.carrier == Carrier.FILE and is_ping(data)):
        return Ping.parse(data)
    return read_packet(data)


def _tree(seen: Seen) -> Annotation:
    tree = annotate(seen.packet)
    if seen.order_body is not None:
        (body,) = (line for line in tree.walk() if line.name == "MessageBody")
        body.children = [annotate(seen.order_body, body.offset)]
    explain_values(tree, seen.packet)
    return tree


def _value_findings(tree: Annotation, section: str = "") -> Iterator[Finding]:
    """The problems found by the declarations of fields."""
    section = tree.section or section
    problems = [(bit.name, bit.problem) for bit in tree.bits if bit.problem]
    if tree.problem and not problems:
        problems = [("", tree.problem)]
    for bits, problem in problems:
        sentence = problem.removeprefix(f"{tree.structure}.{tree.name}").lstrip(" .:")
        handling, why = treatment_of_value(tree.structure, tree.name, bits)
        yield Finding(tree.structure, tree.name, tree.offset, sentence, section, handling, why)
    for child in tree.children:
        yield from _value_findings(child, section)


def check(seen: Seen, rules: Sequence[Rule], tree: Annotation) -> Iterator[Finding]:
    """The rules that a packet breaks, out of ``rules``."""
    for rule in rules:
        if seen.kind in rule.kinds and rule.broken(seen):
            structure, _, name = rule.field.rpartition(".")
            offset = _offset(tree, structure, name)
            yield Finding(structure, name, offset, rule.sentence, rule.section, *rule.treatment)


def _offset(tree: Annotation, structure: str, name: str) -> int | None:
    """The offset of a field, or of its structure if the field is absent."""
    begins = None
    for line in tree.walk():
        if line.structure == structure and line.name == name:
            return line.offset
        if begins is None and structure in (line.name, line.structure):
            begins = line.offset
    return begins
