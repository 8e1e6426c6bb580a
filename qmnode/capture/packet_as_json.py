"""A captured packet as a JSON document. The keys are an interface: add to them, never change them.

=================  ==================================================================================================
``number``         of the packet in the output, from 1
``type``           ``UserMessage``, ``Ping``, ...; null if the bytes are no packet
``time``           of the last frame, in UTC with nanoseconds; null if the file has none
``transport``      ``tcp``, ``udp``, or ``file`` for bytes without addresses
``connection``     number of the TCP connection in the capture, from 1, or null
``direction``      ``client-to-server``, ``server-to-client``, or null
``source``         address and port, or null; likewise ``destination``
``frames``         numbers of the frames that carried the packet
``offset``         of the packet in its stream or file; ``length`` in bytes
``damage``         why the bytes are incomplete (missing in the capture, or not the beginning of a packet), or null
``error``          why they are no packet: ``structure``, ``field``, ``offset``, ``sentence``, ``section``; or null
``findings``       each MUST that the packet breaks: ``structure``, ``field``, ``offset``, ``sentence``, ``section``,
                   ``handling`` (by a node: ``refused``, ``rejected``, ``ignored``, ``tolerated``; empty
                   for a rule between packets) and ``why`` (if it is not refused)
``notes``          unusual content that breaks no MUST, with the same keys
``structure``      the packet as a tree, or null
``format``         of a message's body, if bodies are to be decoded; ``decoded`` is its value, ``undecoded`` why there
                   is none, ``headers`` those in the extension, ``headers_format`` their format
=================  ==================================================================================================

A line of the tree has ``name``, ``section`` (a structure's), ``offset`` from the packet's beginning and ``width`` in
bytes. Its ``value`` is a number, text, or bytes in hexadecimal (null for a structure), and ``text`` is the value for
people. Further keys are ``meaning`` (of the field), ``problem``, ``bits`` (each with ``name``, ``value``, ``shift``,
``width``, ``text``, ``meaning``) and ``children``. Empty ones are left out, except ``value``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qmnode.capture.bodies import decoded_keys
from qmnode.capture.meanings import nanoseconds

if TYPE_CHECKING:
    from qmnode.capture.explain import Explained
    from qmnode.structures.conformance import Finding
    from qmnode.structures.layout import Annotation

_LONG = "MessageBody"


def document(explained: Explained, number: int, *, body: bool, decoded: bool = False) -> dict[str, Any]:
    """The document of one packet. ``body`` includes the bytes of MessageBody, up to 4 MiB."""
    captured = explained.captured
    route = captured.route
    return {
        "number": number,
        "type": explained.kind and explained.kind.value,
        "time": None if captured.origin.time is None else nanoseconds(captured.origin.time),
        "transport": captured.carrier.value,
        "connection": route and route.connection,
        "direction": route and direction(route.from_client),
        "source": route and route.source,
        "destination": route and route.destination,
        "frames": list(captured.origin.frames),
        "offset": captured.origin.offset,
        "length": captured.size,
        "damage": captured.damage,
        "error": explained.error
        and {
            "structure": explained.error.structure,
            "field": explained.error.field,
            "offset": explained.error.offset,
            "sentence": explained.error.sentence,
            "section": explained.error_section,
        },
        "findings": [_finding(finding) for finding in explained.findings],
        "notes": [_finding(note) for note in explained.notes],
        "structure": explained.tree and _line(explained.tree, body=body),
        **(decoded_keys(explained) if decoded else {}),
    }


def direction(from_client: bool) -> str:
    return "client-to-server" if from_client else "server-to-client"


def _finding(finding: Finding) -> dict[str, Any]:
    return finding._asdict()


def _line(line: Annotation, *, body: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": line.name,
        "section": line.section,
        "offset": line.offset,
        "width": line.width,
        "value": None if line.name == _LONG and not body else _value(line.value),
        "text": line.text,
        "meaning": line.meaning,
        "problem": line.problem,
        "bits": [_bits(bit) for bit in line.bits],
        "children": [_line(child, body=body) for child in line.children],
    }
    return {key: value for key, value in found.items() if key == "value" or value not in ("", None, [])}


def _bits(bits: Any) -> dict[str, Any]:
    return {key: getattr(bits, key) for key in ("name", "value", "shift", "width", "text", "meaning")}


def _value(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()  # the wire bytes of a GUID; its text is beside them
    return value if isinstance(value, (int, float, str, type(None))) else str(value)
