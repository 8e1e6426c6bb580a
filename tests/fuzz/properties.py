"""What must hold for any bytes whatever: a table of targets. The fuzzer feeds them, and so do the tests."""

from __future__ import annotations

import json
import struct
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from importlib import import_module
from io import BytesIO
from pathlib import Path
from pkgutil import iter_modules
from types import MappingProxyType

import qmnode.structures
from qmnode.capture.containers import Frame
from qmnode.capture.errors import CaptureError
from qmnode.capture.explain import Explainer
from qmnode.capture.frames import Endpoint, Segment
from qmnode.capture.packet_as_json import document
from qmnode.capture.packet_as_text import Body, summary, tree
from qmnode.capture.read_files import Captured, Format, SourceOptions, read_packets
from qmnode.capture.streams import Data, Gap, StreamFollower, StreamLimits
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import guid_from_text, guid_to_text
from qmnode.structures.layout import Structure, annotate
from qmnode.structures.names import PathName, QueueNameError, parse_format_name
from qmnode.structures.packets import packet_size, read_packet
from tests.fuzz.amqp_properties import AMQP_TARGETS
from tests.fuzz.body_properties import BODY_TARGETS
from tests.fuzz.rpc_properties import RPC_TARGETS
from tests.fuzz.view_properties import VIEW_TARGETS
from tests.lab.sddl import SddlError, format_sddl, parse_sddl

SERVER_PORT = 1801
SECONDS = 5.0
"""The longest that one input may take: far more than it should, so that a busy machine raises no alarm."""
MEMORY_FACTOR = 256
"""Bytes of memory that a byte of input may cost, decode trees included ..."""
MEMORY_BASE = 4 << 20
"""... and what may come on top."""

MOST_PACKETS = 4
"""Packets of one input that are explained: more of them find nothing new, and cost time."""

Target = Callable[[bytes], None]


def structures() -> dict[str, type[Structure]]:
    """Every structure of the package, by module and name."""
    found: dict[str, type[Structure]] = {}
    for module in iter_modules(qmnode.structures.__path__, "qmnode.structures."):
        for kind in vars(import_module(module.name)).values():
            if isinstance(kind, type) and issubclass(kind, Structure) and kind is not Structure:
                found[f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"] = kind
    return dict(sorted(found.items()))


def check_structure(kind: type[Structure], data: bytes) -> None:
    """Bytes give a value or PacketError; a value is written as it was read, from any buffer."""
    try:
        value, stop = kind.parse_from(data)
    except PacketError as error:
        _same_error(kind, data, error)
        return
    assert 0 <= stop <= len(data)
    assert value.write() == data[:stop]
    assert value.size == stop
    other, other_stop = kind.parse_from(memoryview(data))
    assert other_stop == stop
    assert other.write() == data[:stop]
    lines = list(annotate(value).walk())
    assert all(0 <= line.offset <= line.offset + line.width <= stop for line in lines)
    for field in kind.fields():
        getattr(value, field.attribute)


def _same_error(kind: type[Structure], data: bytes, error: PacketError) -> None:
    assert error.sentence
    try:
        kind.parse_from(memoryview(data))
    except PacketError as other:
        assert str(other) == str(error)
    else:
        raise AssertionError("accepted as memoryview and not as bytes")


def check_packet(data: bytes) -> None:
    """A packet is written as it was read, and its size on a stream is its length."""
    try:
        packet = read_packet(data)
    except PacketError:
        return
    assert packet.write() == data
    assert packet_size(data) == len(data)


def check_packet_size(data: bytes) -> None:
    """A size or PacketError, and the beginning of a packet never says other than the whole."""
    try:
        size = packet_size(data)
    except PacketError:
        return
    if size is not None:
        assert packet_size(data[:16]) == size


def check_source(kind: Format, data: bytes) -> None:
    """Any file can be read to its end or CaptureError, and whatever is found can be explained."""
    options = SourceOptions(kind, limits=StreamLimits(1 << 16, 64, 1 << 18, 8))
    explainer = Explainer()
    number = 0
    try:
        for item in read_packets(BytesIO(data), options):
            if isinstance(item, Captured):
                number += 1
                if number > MOST_PACKETS:
                    continue
                explained = explainer.explain(item)
                json.dumps(document(explained, number, body=True))
                summary(explained, number).plain.encode()
                if number == 1:
                    tree(explained, number, Body.TEXT)
    except CaptureError as error:
        assert 0 <= error.offset <= len(data)


def check_streams(data: bytes) -> None:
    """Segments in any order, with any overlap, give each byte of the stream once, in order, or tell that it is missing.

    Four bytes of input make a segment: where it begins (16 bits), its length, and its flags.
    """
    follower = StreamFollower({SERVER_PORT}, StreamLimits(1 << 12, 16, 1 << 13, 4))
    client, server = Endpoint(b"\1" * 4, 4000), Endpoint(b"\2" * 4, SERVER_PORT)
    positions: dict[int, int] = {}
    base: dict[int, int] = {}
    events = []
    for number, (start, length, flags) in enumerate(struct.iter_unpack("<HBB", data[: len(data) // 4 * 4]), 1):
        payload = bytes((start + place) * 7 & 0xFF for place in range(length))
        segment = Segment(client, server, (0xFFFF8000 + start) & 0xFFFFFFFF, flags & 0x05 | 0x10, payload)
        events += list(follower.segment(Frame(number, None, 1, b""), segment))
        assert follower.early_bytes <= 1 << 13
    events += list(follower.finish())
    assert follower.early_bytes == 0
    for event in events:
        connection = event.direction.connection
        position = positions.get(connection, 0)
        if isinstance(event, Gap):
            assert event.size > 0
            positions[connection] = position + event.size
        elif isinstance(event, Data):
            place = base.setdefault(connection, event.data[0] * 183 & 0xFF) + position  # 183 * 7 is 1 modulo 256
            assert event.data == bytes((place + offset) * 7 & 0xFF for offset in range(len(event.data)))
            positions[connection] = position + len(event.data)


def check_format_name(data: bytes) -> None:
    """Text gives a format name that prints as text which gives it again, or QueueNameError."""
    try:
        name = parse_format_name(_text(data))
    except QueueNameError:
        return
    assert parse_format_name(str(name)) == name


def check_path_name(data: bytes) -> None:
    """Text gives a path name that prints as text which gives it again, or QueueNameError."""
    try:
        name = PathName.parse(_text(data))
    except QueueNameError:
        return
    assert PathName.parse(str(name)) == name


def check_sddl(data: bytes) -> None:
    """Text gives a security descriptor that prints as text which gives it again, or SddlError."""
    try:
        descriptor = parse_sddl(_text(data))
    except SddlError:
        return
    assert parse_sddl(format_sddl(descriptor)) == descriptor


def check_guid(data: bytes) -> None:
    """Text gives a GUID or ValueError."""
    try:
        value = guid_from_text(_text(data))
    except ValueError:
        return
    assert guid_from_text(guid_to_text(value)) == value


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


TARGETS = MappingProxyType(
    {
        "packet": check_packet,
        "packet_size": check_packet_size,
        **{f"source.{kind.value}": partial(check_source, kind) for kind in Format},
        "streams": check_streams,
        "format_name": check_format_name,
        "path_name": check_path_name,
        "guid": check_guid,
        "sddl": check_sddl,
        **VIEW_TARGETS,
        **RPC_TARGETS,
        **AMQP_TARGETS,
        **BODY_TARGETS,
        **{name: partial(check_structure, kind) for name, kind in structures().items()},
    }
)
"""What is fed, by name."""

NAMES = tuple(TARGETS)


def run(target: str, data: bytes, *, measure: bool = False) -> None:
    """Feed one target within its bounds of processor time and, when ``measure`` is set (it is slow), of memory."""
    begin = time.process_time()
    if measure:
        tracemalloc.start()
    try:
        TARGETS[target](data)
    finally:
        peak = tracemalloc.get_traced_memory()[1] if measure else 0
        if measure:
            tracemalloc.stop()
    assert peak <= MEMORY_BASE + MEMORY_FACTOR * len(data), f"{peak} bytes of memory for {len(data)} of input"
    seconds = time.process_time() - begin
    assert seconds <= SECONDS, f"{seconds:.1f} s for {len(data)} bytes"


REGRESSIONS = Path(__file__).with_name("regressions")
"""What the fuzzer found: files named TARGET-ANYTHING."""
