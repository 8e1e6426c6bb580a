"""A captured packet as a tree for a terminal, or as one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rich.text import Text
from rich.tree import Tree

from qmnode.bodies.choice import Decoded, Headers
from qmnode.bodies.values_as_json import shown
from qmnode.capture.bodies import decoded_message
from qmnode.capture.meanings import nanoseconds, queue_name
from qmnode.structures.conformance import Finding, Kind
from qmnode.structures.text import printable
from qmnode.structures.user_message import UserFlags

if TYPE_CHECKING:
    from qmnode.capture.explain import Explained
    from qmnode.structures.layout import Annotation, BitsAnnotation

_SHOWN_BYTES = 24
_SHOWN_TEXT = 200
_ROW = 16
_VT_TEXT = {8, 31}
"""BodyType of UTF-16 text: VT_BSTR and VT_LPWSTR."""


class Body(StrEnum):
    """How bodies are shown."""

    SHORT = "short"
    HEX = "hex"
    TEXT = "text"
    DECODED = "decoded"


def headline(explained: Explained, number: int) -> Text:
    """The kind, time, addresses and frames of a packet."""
    captured, kind = explained.captured, explained.kind
    line = Text()
    line.append(f"#{number} ", "bold")
    line.append(f"{kind.value} Packet" if kind else "no packet", "bold green" if kind else "bold red")
    if captured.origin.time is not None:
        line.append(f"  {nanoseconds(captured.origin.time)}", "cyan")
    if route := captured.route:
        way = "client -> server" if route.from_client else "server -> client"
        line.append(f"  {way}  {route.source} -> {route.destination}")
        if route.connection is not None:
            line.append(f"  connection {route.connection}", "dim")
    if frames := captured.origin.frames:
        line.append(f"  frame{'s' if len(frames) > 1 else ''} {_ranges(frames)}", "dim")
    line.append(f"  {captured.size} bytes", "dim")
    if route is None or route.connection is not None:
        line.append(f" at {captured.origin.offset}", "dim")
    return line


def _ranges(numbers: Iterable[int]) -> str:
    """1, 2, 3, 7 as "1-3, 7"."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def summary(explained: Explained, number: int) -> Text:
    """One line: the headline, with the most important fields of the packet."""
    line = headline(explained, number)
    for word in _gist(explained):
        line.append("  " + printable(word))
    for complaint in _complaints(explained):
        line.append("  ")
        line.append(printable(complaint), "red")
    return line


def _gist(explained: Explained) -> Iterator[str]:
    """The fields that a reader looks for first."""
    packet: Any = explained.packet
    match explained.kind:
        case Kind.USER_MESSAGE | Kind.ORDER_ACK | Kind.FINAL_ACK:
            header, properties = packet.user_header, packet.message_properties_header
            name = queue_name(header, "DestinationQueue") if UserFlags.FIELDS["DQ"].get(header.flags) else "no queue"
            yield f"id {header.message_id} to {name}"
            if properties.label:
                yield f"label {properties.label!r}"
            yield f"body of {properties.message_size} bytes"
        case Kind.SESSION_ACK:
            yield f"acknowledges up to {packet.session_header.ack_sequence_number}"
        case Kind.CONNECTION_PARAMETERS:
            yield f"window {packet.connection_parameters_header.window_size}"
        case Kind.PING:
            yield f"cookie {packet.cookie}"


def _complaints(explained: Explained) -> Iterator[str]:
    if explained.captured.damage:
        yield explained.captured.damage
    if explained.error:
        yield f"{explained.error} ({explained.error_section})"
    yield from (describe(finding) for finding in explained.findings)


def describe(finding: Finding) -> str:
    where = "" if finding.offset is None else f" at offset {finding.offset}"
    handling = f"; {finding.handling} by a node" if finding.handling else ""
    if finding.why:
        handling += f": {finding.why}"
    return f"{finding.structure}.{finding.field}{where}: {finding.sentence} ({finding.section}){handling}"


def tree(explained: Explained, number: int, body: Body) -> Tree:
    """The packet with all its fields as a tree."""
    line = headline(explained, number)
    root = Tree(line, guide_style="dim")
    if explained.tree is not None:
        line.append(f"  [{explained.tree.section}]", "blue")
        for child in explained.tree.children:
            _add(root, child, explained, body)
    else:
        _rows(root, explained.captured.data[: _SHOWN_BYTES * _ROW], 0)
    for complaint in _complaints(explained):
        root.add(Text.assemble(("broken  ", "bold red"), (printable(complaint), "red")))
    for note in explained.notes:
        root.add(Text.assemble(("note  ", "bold yellow"), (printable(describe(note)), "yellow")))
    return root


def plain(root: Tree) -> Iterator[str]:
    """The same lines that rich prints for a tree without colours and folding, five times as fast."""
    yield str(root.label)
    yield from _plain_children(root, "")


def _plain_children(node: Tree, guide: str) -> Iterator[str]:
    for child in node.children:
        last = child is node.children[-1]
        yield f"{guide}{'└── ' if last else '├── '}{child.label}"
        yield from _plain_children(child, guide + ("    " if last else "│   "))


def _add(parent: Tree, line: Annotation, explained: Explained, body: Body) -> None:
    node = parent.add(_label(line))
    for bit in line.bits:
        if bit.value or not bit.name.startswith("X"):
            node.add(_bits_label(line, bit))
    if line.name == "MessageBody":
        _add_body(node, line, explained, body)
    for child in line.children:
        if child.width or child.name == "MessageBody":  # absent fields are not worth reading
            _add(node, child, explained, body)


def _label(line: Annotation) -> Text:
    text = Text()
    text.append(f"{line.offset:04x} ", "dim")
    text.append(line.name, "bold" if line.section else "")
    if shown := _shown(line):
        text.append(": ")
        text.append(printable(shown), "green")
    if line.meaning:
        text.append(f"  {printable(line.meaning)}", "dim")
    if line.section:
        text.append(f"  [{line.section}]", "blue")
    if line.problem:
        text.append(f"  {printable(line.problem)}", "red")
    return text


def _shown(line: Annotation) -> str:
    value = line.value
    if isinstance(value, (bytes, memoryview)) and line.text in (f"{len(value)} bytes", bytes(value).hex()):
        data = bytes(value[:_SHOWN_BYTES])
        return f"{len(value)} bytes" + (f": {data.hex(' ')}{' ...' if len(value) > len(data) else ''}" if data else "")
    return line.text if len(line.text) <= _SHOWN_TEXT * 2 else line.text[: _SHOWN_TEXT * 2] + "..."


def _bits_label(line: Annotation, bits: BitsAnnotation) -> Text:
    width = line.width * 8
    pattern = "".join(
        str(line.value >> place & 1) if bits.shift <= place < bits.shift + bits.width else "."
        for place in reversed(range(width))
    )
    text = Text()
    text.append(pattern, "dim")
    text.append(f" {bits.name} = {bits.value}")
    if bits.text:
        text.append(f" {printable(bits.text)}", "green")
    text.append(f"  {bits.meaning}", "dim")
    if bits.problem:
        text.append(f"  {bits.problem}", "red")
    return text


def _add_body(node: Tree, line: Annotation, explained: Explained, body: Body) -> None:
    data = bytes(line.value or b"")
    if body is Body.HEX:
        _rows(node, data, line.offset)
    elif body is Body.DECODED and (found := decoded_message(explained)) is not None:
        _add_decoded(node, *found)
    elif body is Body.TEXT or (explained.packet.message_properties_header.body_type in _VT_TEXT):
        text = data.decode("utf-16-le", "replace") if _is_utf16(data, explained) else data.decode("utf-8", "replace")
        shown = text if body is Body.TEXT else text[:_SHOWN_TEXT]
        node.add(Text(printable(shown) + ("..." if len(shown) < len(text) else "")))


def _add_decoded(node: Tree, decoded: Decoded, headers: Headers) -> None:
    node.add(Text(decoded.format or "unknown format"))
    for name, value in headers.values.items():
        node.add(Text(printable(f"{name}: {value}")))
    for reason in filter(None, (decoded.reason, headers.reason)):
        node.add(Text(printable(f"not decoded: {reason}"), "red"))
    if not decoded.reason:
        for row in shown(decoded.value).splitlines():
            node.add(Text(printable(row)))


def _is_utf16(data: bytes, explained: Explained) -> bool:
    if explained.packet.message_properties_header.body_type in _VT_TEXT:
        return True
    return len(data) % 2 == 0 and data[1::2].count(0) * 2 > len(data) // 2


def _rows(node: Tree, data: bytes, offset: int) -> None:
    for start in range(0, len(data), _ROW):
        row = data[start : start + _ROW]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        node.add(Text(f"{offset + start:04x}  {row.hex(' '):<{3 * _ROW}} {letters}", "dim"))
