"""Clients that write the other way round: C706 14.1 has the reader put it right."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from qmnode.dcerpc import byte_order
from qmnode.dcerpc.errors import FaultStatus, PduError
from qmnode.dcerpc.ndr import NDR, NDR64, big_endian_of
from qmnode.dcerpc.pdu import BIG_ENDIAN, FIRST_FRAGMENT, LAST_FRAGMENT, WHOLE, PduType
from qmnode.model.stored_message import message_from_packet
from qmnode.remote_read import qm2qm, qmcomm
from qmnode.remote_read.qm2qm import QM2QM
from qmnode.remote_read.qmcomm import QMCOMM
from qmnode.remote_read.queue_format import to_queue_format
from qmnode.structures.names import parse_single_format_name
from tests.lab.cases import cases
from tests.remote_read.conftest import THERE
from tests.remote_read.raw_client import RawClient, bind_pdu, request_pdu
from tests.remote_read.stubs import STUBS

if TYPE_CHECKING:
    from qmnode.dcerpc.interface import Method
    from qmnode.dcerpc.ndr import Parameters, Representation
    from tests.remote_read.conftest import Remote
    from tests.remote_read.stubs import Stub

BIG = big_endian_of(NDR)


def big_pdu(kind: int, call_id: int, body: bytes, flags: int = WHOLE) -> bytes:
    return struct.pack(">4B4sHHI", 5, 0, kind, flags, BIG_ENDIAN, 16 + len(body), 0, call_id) + body


def big_bind(*interfaces: object) -> bytes:
    """What ``bind_pdu`` makes, the other way round."""
    contexts = b""
    for number, one in enumerate(interfaces):
        syntaxes = b""
        for uuid, version in (one.syntax, (bytes.fromhex("045d888aeb1cc9119fe808002b104860"), 2)):
            syntaxes += struct.pack(">IHH8sI", *struct.unpack("<IHH8s", uuid), version)
        contexts += struct.pack(">HBB", number, 1, 0) + syntaxes
    return big_pdu(PduType.BIND, 1, struct.pack(">HHIB3s", 5840, 5840, 0, len(interfaces), bytes(3)) + contexts)


def big_request(method: Method, request: Parameters, context: int, call_id: int, flags: int = WHOLE) -> bytes:
    head = struct.pack(">IHH", 0, context, method.opnum)
    return big_pdu(PduType.REQUEST, call_id, head + request.encode(BIG), flags)


@cases("representation", [NDR, NDR64], ids=lambda one: one.name)
@cases("stub", STUBS, ids=lambda one: one.name)
def test_stubs_say_the_same_either_way(stub: Stub, representation: Representation) -> None:
    big = big_endian_of(representation)
    turned = stub.ours.encode(big)
    assert type(stub.ours).decode(turned, big) == stub.ours
    assert len(turned) == len(stub.ours.encode(representation))


def test_a_stub_is_written_field_by_field() -> None:
    request = qm2qm.EndReceiveRequest(context=bytes(range(20)), ack=2)
    assert request.encode(BIG).hex() == "03020100" + "07060504" + "0908" + "0b0a" + "0c0d0e0f10111213" + "00000002"
    version = qm2qm.GetVersionResponse(major=6, minor=1, build_number=0x1DB1)
    assert version.encode(BIG).hex() == "06011db1"
    name = qmcomm.OpenRemoteQueueRequest(
        queue_format=to_queue_format(parse_single_format_name(r"DIRECT=OS:h\q")), desired_access=1
    )
    assert "OS:h\\q\0".encode("utf-16-be") in name.encode(BIG)


async def test_a_big_endian_client_receives(remote: Remote) -> None:
    await remote.send(b"one", b"two")
    async with RawClient(remote.address, remote.port) as client:
        await client.send(big_bind(QMCOMM, QM2QM))
        assert (await client.receive()).pdu_type == PduType.BIND_ACK
        ids = iter(range(0x01020304, 0x01020404))

        async def call(method: Method, request: Parameters) -> Parameters:
            context = 0 if method.name.startswith("R_QM") else 1
            await client.send(big_request(method, request, context, next(ids)))
            answer = await client.answer()
            assert isinstance(answer, bytes)
            return method.response.decode(answer, NDR)

        name = to_queue_format(parse_single_format_name(THERE))
        opened = await call(
            qmcomm.OPEN_REMOTE_QUEUE, qmcomm.OpenRemoteQueueRequest(queue_format=name, desired_access=1)
        )
        number = opened.h_queue
        session = await call(qm2qm.OPEN_QUEUE, qm2qm.OpenQueueRequest(h_queue=number, p_queue=number, context=number))
        assert (opened.status, session.status) == (0, 0)
        desc = qm2qm.RemoteReadDesc(remote_queue=number, queue=number, request_id=1)
        started = await call(
            qm2qm.START_RECEIVE2, qm2qm.StartReceive2Request(desc2=qm2qm.RemoteReadDesc2(remote_read_desc=desc))
        )
        assert message_from_packet(started.desc2.remote_read_desc.buffer).body == b"one"
        end = qm2qm.EndReceiveRequest(context=started.context, ack=2)
        assert (await call(qm2qm.END_RECEIVE, end)).status == 0
        assert (await call(qm2qm.CLOSE_QUEUE, qm2qm.CloseQueueRequest(context=session.context))).status == 0
    assert await remote.bodies() == [b"two"]


async def test_fragments_of_a_call_are_written_one_way(remote: Remote) -> None:
    version = qm2qm.GetVersionRequest()
    async with RawClient(remote.address, remote.port) as client:
        await client.bind(QM2QM)
        await client.send(big_request(qm2qm.GET_VERSION, version, 0, 2))
        assert await client.answer() == bytes.fromhex("0601b11d")
        await client.send(big_request(qm2qm.GET_VERSION, version, 7, 3))
        assert await client.answer() == FaultStatus.UNKNOWN_INTERFACE
        await client.send(big_request(qm2qm.END_RECEIVE, qm2qm.EndReceiveRequest(context=bytes(20), ack=1), 0, 4)[:-4])
        await client.send(struct.pack(">I", 3))
        assert await client.answer() == FaultStatus.INVALID_BOUND
        end = qm2qm.EndReceiveRequest(context=bytes(20), ack=1)
        await client.send(big_request(qm2qm.END_RECEIVE, end, 0, 5, FIRST_FRAGMENT))
        await client.send(request_pdu(qm2qm.END_RECEIVE.opnum, b"", 5, flags=LAST_FRAGMENT))
        assert await client.closes()


@cases("size", range(0, 72, 5))
def test_a_body_that_ends_early_is_refused(size: int) -> None:
    body = big_bind(QM2QM)[16:]
    assert len(body) == 72 - 16
    if size < len(body):
        with pytest.raises(PduError):
            byte_order.bind_body(body[:size])


@pytest.mark.parametrize("representation", [b"\1\0\0\0", b"\x11\0\0\0", b"\x20\0\0\0", b"\0\1\0\0", b"\x10\3\0\0"])
async def test_other_characters_and_numbers_are_not_read(remote: Remote, representation: bytes) -> None:
    async with RawClient(remote.address, remote.port) as client:
        whole = bytearray(bind_pdu(QM2QM.syntax))
        whole[4:8] = representation
        await client.send(bytes(whole))
        assert await client.closes()
