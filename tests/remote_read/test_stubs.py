"""Stub data in NDR and NDR64, against impacket's and against golden bytes."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import impacket.dcerpc.v5.ndr as foreign_ndr
import pytest

from qmnode.dcerpc.errors import NdrError, RangeError
from qmnode.dcerpc.ndr import NDR, NDR64, Representation
from qmnode.dcerpc.ndr.types import NdrWriter
from qmnode.remote_read import qm2qm, qmcomm
from qmnode.remote_read.qm2qm import QM2QM, RemoteReadAck
from qmnode.remote_read.qmcomm import QMCOMM, TransferBuffer
from tests.lab.cases import cases
from tests.remote_read.foreign import CALLS
from tests.remote_read.stubs import GUID, STUBS, Stub, desc, desc2

GOLDEN = Path(__file__).with_name("golden")
REFERENT = 0x20000
REPRESENTATIONS = cases("representation", [NDR, NDR64], ids=lambda one: one.name)
EVERY_STUB = cases("stub", STUBS, ids=lambda one: one.name)
PADDING = frozenset(range(0xAA, 0xC0)) | {0xEE}
"""What impacket pads with; all else pads with zeros."""
NOT_THE_SPECIFICATION = {("R_QMOpenRemoteQueue.request.private", "NDR64"), ("R_QMCreateRemoteCursor.request", "NDR64")}
"""A structure of 36 bytes aligned to 8: MS-RPCE 2.2.5.3.4.1 wants its trailing gap, which impacket leaves out. A union
is aligned like the largest of all its members (2.2.5.3.4.4), by impacket like the one that travels."""


def golden() -> dict[tuple[str, str], bytes]:
    """What was agreed on once: name, representation and bytes in each line."""
    lines = (GOLDEN / "stubs.txt").read_text("utf-8").splitlines()
    rows = (line.split(" ", 2) for line in lines if not line.startswith("#"))
    return {(name, representation): bytes.fromhex(digits) for name, representation, digits in rows}


@pytest.fixture(autouse=True)
def equal_referents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Referents are any numbers that are not 0: both sides take the same."""
    monkeypatch.setattr(foreign_ndr.random, "randint", lambda *_: REFERENT)
    monkeypatch.setattr(NdrWriter, "next_referent", lambda _: REFERENT)


def theirs(stub: Stub, representation: Representation) -> Any:
    call = CALLS[stub.method][stub.direction](isNDR64=representation is NDR64)
    stub.fill(call)
    return call


def without_padding(foreign: bytes, ours: bytes) -> bytes:
    return bytes(0 if one in PADDING and other == 0 else one for one, other in zip(foreign, ours, strict=True))


@REPRESENTATIONS
@EVERY_STUB
def test_a_stub_is_what_impacket_makes_of_the_same_values(stub: Stub, representation: Representation) -> None:
    if (stub.name, representation.name) in NOT_THE_SPECIFICATION:
        return  # impacket leaves gaps out
    foreign = theirs(stub, representation).getData()
    ours = stub.ours.encode(representation)
    assert len(ours) == len(foreign)
    assert ours == without_padding(foreign, ours)
    assert type(stub.ours).decode(foreign, representation) == stub.ours


@REPRESENTATIONS
@EVERY_STUB
def test_impacket_reads_what_we_make(stub: Stub, representation: Representation) -> None:
    if (stub.name, representation.name) in NOT_THE_SPECIFICATION:
        return  # impacket leaves gaps out
    ours = stub.ours.encode(representation)
    kind = CALLS[stub.method][stub.direction]
    own = theirs(stub, representation).getData()
    if kind(own, isNDR64=representation is NDR64).getData() != own:
        return  # impacket does not read what it writes itself
    read = kind(ours, isNDR64=representation is NDR64)
    assert without_padding(read.getData(), ours) == ours


@REPRESENTATIONS
@EVERY_STUB
def test_a_stub_has_its_golden_bytes_both_ways(stub: Stub, representation: Representation) -> None:
    agreed = golden()[stub.name, representation.name]
    assert stub.ours.encode(representation) == agreed
    assert type(stub.ours).decode(agreed, representation) == stub.ours


def test_every_method_has_golden_bytes() -> None:
    named = {name.split(".")[0] for name, _ in golden()}
    assert {method.name for method in QM2QM.methods.values()} <= named
    assert sorted(QM2QM.methods) == list(range(11))
    assert sorted(QMCOMM.methods) == [2, 3, 4, 31]


def test_the_acknowledgment_begins_at_0_and_get_version_has_no_status() -> None:
    assert [int(one) for one in RemoteReadAck] == [0, 1, 2]
    assert qm2qm.GetVersionResponse(major=6, minor=1, build_number=0x1DB1).encode(NDR) == bytes.fromhex("0601b11d")
    assert qm2qm.GetVersionResponse(major=6, minor=1, build_number=0x1DB1).encode(NDR64) == bytes.fromhex("0601b11d")


@REPRESENTATIONS
def test_stub_data_cut_anywhere_are_refused(representation: Representation) -> None:
    for stub in STUBS:
        whole = stub.ours.encode(representation)
        for end in range(len(whole)):
            with pytest.raises(NdrError):
                type(stub.ours).decode(whole[:end], representation)


@REPRESENTATIONS
def test_what_follows_the_parameters_is_ignored(representation: Representation) -> None:
    request = qm2qm.PurgeQueueRequest(queue=1)
    assert qm2qm.PurgeQueueRequest.decode(request.encode(representation) + b"verification", representation) == request


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (qm2qm.EndReceiveRequest, {"context": bytes(20), "ack": 0}),
        (qm2qm.EndReceiveRequest, {"context": bytes(20), "ack": 3}),
        (qm2qm.OpenQueueRequest, {"mqs": 17, "h_queue": 1, "p_queue": 1, "context": 1}),
    ],
)
def test_a_number_outside_its_range_is_refused(kind: Any, values: dict[str, Any]) -> None:
    with pytest.raises(RangeError):
        kind(**values).encode(NDR)


@REPRESENTATIONS
def test_a_buffer_larger_than_the_declaration_allows_is_refused(representation: Representation) -> None:
    with pytest.raises(RangeError):
        qm2qm.StartReceiveRequest(desc=desc(bytes(qm2qm.MAXIMUM_BUFFER + 1))).encode(representation)


@cases("wrong", [0, 4, 6, 0x7FFFFFFF, 0xFFFFFFFF])
@cases("place", ["size", "maximum", "actual"])
def test_counts_that_contradict_each_other_are_refused(place: str, wrong: int) -> None:
    stub = bytearray(qm2qm.StartReceiveRequest(desc=desc(b"12345")).encode(NDR))
    offset = {"size": 16, "maximum": 44, "actual": 52}[place]
    assert stub[offset : offset + 4] == b"\5\0\0\0"
    stub[offset : offset + 4] = wrong.to_bytes(4, "little")
    with pytest.raises(NdrError):
        qm2qm.StartReceiveRequest.decode(bytes(stub), NDR)


@REPRESENTATIONS
def test_a_cursor_request_carries_a_transfer_buffer_of_any_content(representation: Representation) -> None:
    full = TransferBuffer(
        body=b"body", title=[116, 0], correlation_id=bytes(20), message_class=2, sent_time=7, priority=3,
        signature=b"signature", sender_id=b"sid", source_queue_manager=GUID, extension=b"e",
    )  # fmt: skip
    for buffer in (TransferBuffer(), full):
        request = qmcomm.CreateRemoteCursorRequest(buffer=buffer, queue=0x01020304)
        assert qmcomm.CreateRemoteCursorRequest.decode(request.encode(representation), representation) == request


def test_a_null_description_travels() -> None:
    request = qm2qm.StartReceive2Request(desc2=qm2qm.RemoteReadDesc2(remote_read_desc=None))
    for representation in (NDR, NDR64):
        assert qm2qm.StartReceive2Request.decode(request.encode(representation), representation) == request
    assert desc2() != request.desc2


def test_no_module_of_the_node_imports_an_attack_tool() -> None:
    for path in Path(qm2qm.__file__).parents[1].rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.partition(".")[0] == "impacket" for name in names), path
