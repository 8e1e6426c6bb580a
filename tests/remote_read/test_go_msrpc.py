"""go-msrpc, whose stubs are generated from the IDL of the specifications, reads our queues: MS-MQRR and MS-MQQP."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from qmnode.dcerpc.ndr import NDR, NDR64
from qmnode.structures.error_codes import ErrorCode
from tests.remote_read.go_msrpc import call, golden, same_but_for_referents
from tests.remote_read.remoteread_answers import answers_of, body, every_answer
from tests.remote_read.remoteread_stubs import OURS

if TYPE_CHECKING:
    from tests.remote_read.conftest import Remote

REPRESENTATIONS = {one.name: one for one in (NDR, NDR64)}
QUEUE = r"OS:SERVING\private$\orders"


def test_stubs_have_the_bytes_that_go_msrpc_once_wrote() -> None:
    seen = set()
    for line in golden("go-msrpc.txt"):
        name, representation, digits = line.split()
        theirs, ours = bytes.fromhex(digits.strip("-")), OURS[name]
        assert same_but_for_referents(ours.encode(REPRESENTATIONS[representation]), theirs), line
        assert type(ours).decode(theirs, REPRESENTATIONS[representation]) == ours
        seen.add((name, representation))
    assert seen == {(name, one) for name in OURS for one in REPRESENTATIONS}


@pytest.mark.servers
def test_our_stubs_are_those_that_go_msrpc_writes() -> None:
    assert [line for line in call("stubs").splitlines() if "QMMgmt" not in line] == golden("go-msrpc.txt")


@pytest.mark.servers
@pytest.mark.parametrize("representation", REPRESENTATIONS)
async def test_go_msrpc_calls_every_method(remote: Remote, representation: str) -> None:
    await remote.send(b"one", b"two", b"three")
    output = await asyncio.to_thread(call, "read", remote.address, str(remote.port), representation, QUEUE)
    assert answers_of(output) == every_answer(remote.port)
    moved = await remote.manager.open_queue(r"DIRECT=OS:.\private$\orders;later")
    assert (await moved.receive(0)).body == b"one"


@pytest.mark.servers
@pytest.mark.parametrize("representation", REPRESENTATIONS)
async def test_go_msrpc_calls_every_method_of_the_older_interface(remote: Remote, representation: str) -> None:
    await remote.send(b"one", b"two", b"three")
    output = await asyncio.to_thread(call, "read-older", remote.address, str(remote.port), representation, QUEUE)
    said = [
        (name, *values[:-1], body(bytes.fromhex(values[-1]))) if len(values) > 1 else (name, *values)
        for name, *values in map(json.loads, output.splitlines())
    ]
    assert said == [
        ("RemoteQMGetQMQMServerPort", remote.port),
        ("RemoteQmGetVersion", "6.1"),
        ("RemoteQMOpenQueue", 0),
        ("RemoteQMStartReceive2", 0, b"one"),
        ("RemoteQMStartReceive", 0, b"one"),
        ("RemoteQMEndReceive", 0),
        ("RemoteQMStartReceiveByLookupId", 0, b"two"),
        ("RemoteQMCancelReceive", ErrorCode.MQ_ERROR_INVALID_HANDLE),
        ("RemoteQMCloseCursor", ErrorCode.MQ_ERROR_INVALID_HANDLE),
        ("RemoteQMPurgeQueue", 0),
        ("RemoteQMCloseQueue", 0),
    ]
