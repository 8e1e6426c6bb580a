"""Looked at from Windows: go-msrpc's generated stubs read a node over MS-MQMR, and act on it as an administrator."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pytest

import qmnode
from qmnode import Access, Message
from qmnode.dcerpc.errors import NdrError
from qmnode.dcerpc.ndr import NDR, NDR64
from qmnode.remote_management.qmmgmt import (
    ActionRequest,
    ActionResponse,
    GetInfoRequest,
    GetInfoResponse,
    ManagementObject,
    ManagementObjectType,
)
from qmnode.remote_management.variants import FlatVariant, Variant, variant, vector
from qmnode.remote_read.queue_format import QueueFormatValue
from qmnode.structures.enumerations import VariantType as V
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.properties import ManagementMachineProperty as M
from qmnode.structures.properties import ManagementQueueProperty as Q
from qmnode.version import program_version
from tests.lab.addresses import free_alias
from tests.lab.nodes import NodeProcess
from tests.lab.waiting import holds
from tests.remote_read.conftest import random_port
from tests.remote_read.go_msrpc import answers, call, golden, same_but_for_referents

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ADMIN, PASSWORD = r"HOME\alice", "Secret-1"
SOMEBODY = r"HOME\bob"
_DIRECT = ManagementObject(
    type=ManagementObjectType.MGMT_QUEUE, identifier=QueueFormatValue(format_type=3, identifier="OS:X\\q")
)


def _info(kind: ManagementObject, *properties: int) -> GetInfoRequest:
    return GetInfoRequest(object=kind, properties=list(properties), values=[FlatVariant() for _ in properties])


OURS: dict[str, Any] = {
    "R_QMMgmtGetInfo_Request.machine": _info(ManagementObject(type=ManagementObjectType.MGMT_MACHINE), 1, 2, 6),
    "R_QMMgmtGetInfo_Request.queue": _info(_DIRECT, 7),
    "R_QMMgmtGetInfo_Request.session": _info(ManagementObject(type=ManagementObjectType.MGMT_SESSION), 1),
    "R_QMMgmtGetInfo_Response": GetInfoResponse(
        values=[
            variant(V.VT_LPWSTR, "OS:X\\q"),
            vector(V.VT_VECTOR_LPWSTR, ["one", "three"]),
            variant(V.VT_UI4, 0xFFFFFFFF),
            variant(V.VT_I4, -1),
            variant(V.VT_I8, -2),
            variant(V.VT_BLOB, b"\1\2\3"),
            Variant(),
            vector(
                V.VT_VECTOR_VARIANT,
                [
                    vector(V.VT_VECTOR_UI4, [1, 2]),
                    vector(V.VT_VECTOR_VARIANT, [vector(V.VT_VECTOR_LPWSTR, ["a"]), vector(V.VT_VECTOR_LPWSTR, [])]),
                ],
            ),
        ]
    ),
    "R_QMMgmtAction_Request": ActionRequest(object=_DIRECT, action="PAUSE"),
    "R_QMMgmtAction_Response": ActionResponse(status=ErrorCode.MQ_ERROR_ACCESS_DENIED),
}


def test_stubs_have_the_bytes_that_go_msrpc_once_wrote() -> None:
    seen = set()
    for line in golden("qmmgmt.txt"):
        name, representation, digits = line.split()
        theirs, ours = bytes.fromhex(digits), OURS[name]
        assert representation == NDR.name
        assert same_but_for_referents(ours.encode(NDR), theirs), name
        assert type(ours).decode(theirs, NDR) == ours
        seen.add(name)
    assert seen == set(OURS)


@pytest.mark.parametrize("value", [OURS["R_QMMgmtGetInfo_Response"], OURS["R_QMMgmtGetInfo_Request.queue"]])
def test_stubs_survive_the_way_in_ndr64_as_well(value: Any) -> None:
    assert type(value).decode(value.encode(NDR64), NDR64) == value


@pytest.mark.parametrize("representation", [NDR, NDR64], ids=lambda one: one.name)
def test_every_type_of_a_value_survives_the_way(representation: Any) -> None:
    values = [
        variant(V.VT_I1, -1),
        variant(V.VT_UI1, 0xFF),
        variant(V.VT_I2, -2),
        variant(V.VT_UI2, 0xFFFE),
        variant(V.VT_UI8, 1 << 63),
        variant(V.VT_CLSID, bytes(range(16))),
        variant(V.VT_BLOB, b"ab"),
        variant(V.VT_VECTOR_UI1, b"ab"),
        vector(V.VT_VECTOR_UI2, [1, 0x0203]),
        vector(V.VT_VECTOR_I4, [-2]),
        vector(V.VT_VECTOR_UI4, [1, 0xFFFFFFFE]),
        vector(V.VT_VECTOR_UI8, [1 << 40]),
        vector(V.VT_VECTOR_CLSID, [bytes(range(16))]),
        vector(V.VT_VECTOR_LPWSTR, ["a", ""]),
    ]
    response = GetInfoResponse(values=[*values, vector(V.VT_VECTOR_VARIANT, values)])

    assert GetInfoResponse.decode(response.encode(representation), representation) == response


@pytest.mark.parametrize("kind", [V.VT_VARIANT, V.VT_VECTOR_VARIANT, 0x1000, 0x1002, 0x2003, 0xFFFF])
def test_a_type_that_no_request_may_have_is_refused(kind: int) -> None:
    stub = bytearray(_info(_DIRECT, 7).encode(NDR))
    at = stub.rindex(V.VT_NULL.to_bytes(2, "little"))
    stub[at : at + 2] = kind.to_bytes(2, "little")

    with pytest.raises(NdrError):
        GetInfoRequest.decode(bytes(stub), NDR)


@pytest.mark.servers
def test_our_stubs_are_those_that_go_msrpc_writes() -> None:
    ours = [line for line in call("stubs").splitlines() if line.startswith("R_QMMgmt")]
    assert ours == golden("qmmgmt.txt")


class Managed(NodeProcess):
    """A node that administrators may look at, with remote reading off."""

    def __init__(self, folder: Path) -> None:
        self.mapper, self.port = random_port(), random_port()
        self.address = free_alias([self.mapper, self.port])
        users = folder / "users"
        users.write_text(f"HOME:alice:{PASSWORD}\nHOME:bob:{PASSWORD}\n")
        users.chmod(0o600)
        self.audit = folder / "audit"
        super().__init__(
            folder,
            computer_name="MANAGED",
            management={"socket": str(folder / "management.sock"), "audit_log": str(self.audit)},
            transport={"address": self.address, "port": self.port, "ping_port": self.port},
            security={
                "account_security_identifiers": {"alice": "S-1-5-21-1-2-3-1001", "bob": "S-1-5-21-1-2-3-1002"},
                "administrators": ["uid:0", "node", "S-1-5-21-1-2-3-1001"],
            },
            remote_read={
                "management": True, "address": self.address, "port": 0, "endpoint_mapper_port": self.mapper,
                "users": str(users),
            },
        )  # fmt: skip
        self.start()

    async def calls(self, user: str, *commands: str, syntax: str = "NDR") -> list[Any]:
        """Find the port at the endpoint mapper, as Windows does, and perform commands there."""
        [[port]] = await answers("map", self.address, str(self.mapper))
        password = PASSWORD if user else ""
        return await answers("management", self.address, port, syntax, user, password, *commands)

    async def values(self, target: str, *properties: int, user: str = ADMIN) -> list[Any]:
        numbers = ",".join(str(int(one)) for one in properties)
        [[_, _, status, values]] = await self.calls(user, f"info {target} {numbers}")
        assert status == "0x00000000"
        return list(values)

    def audited(self) -> list[dict[str, Any]]:
        lines = self.audit.read_text("utf-8").splitlines() if self.audit.exists() else []
        return [one for one in map(json.loads, lines) if one["channel"] == "qmmgmt"]


@pytest.fixture
def managed(tmp_path: Path) -> Iterator[Managed]:
    one = Managed(tmp_path)
    yield one
    assert one.stop() == 0


@pytest.mark.servers
async def test_an_administrator_sees_the_machine_and_ten_queues(managed: Managed) -> None:
    names = [f"q{number}" for number in range(10)]
    async with await managed.connect() as node:
        for number, name in enumerate(names):
            await node.create_queue(rf".\private$\{name}", transactional=number % 2 == 1)
        async with await node.open_queue(r"DIRECT=OS:.\private$\q0", Access.SEND) as queue:
            await queue.send_many([Message(b"x" * 100, recoverable=True)] * 3)
        sizes = [(await node.queue(rf".\private$\{name}")).total_bytes for name in names]
        in_all = (await node.status()).total_bytes

    active, private, server, connected, version, octets = await managed.values("machine", *M)
    assert active == [r"DIRECT=OS:MANAGED\private$\q0"]
    assert {rf"MANAGED\private$\{name}" for name in names} <= set(private)
    assert (server, connected, version, octets) == (None, "CONNECTED", f"qmnode {program_version()}", in_all)

    wanted = (
        Q.PROPID_MGMT_QUEUE_PATHNAME, Q.PROPID_MGMT_QUEUE_FORMATNAME, Q.PROPID_MGMT_QUEUE_TYPE,
        Q.PROPID_MGMT_QUEUE_LOCATION, Q.PROPID_MGMT_QUEUE_XACT, Q.PROPID_MGMT_QUEUE_FOREIGN,
        Q.PROPID_MGMT_QUEUE_MESSAGE_COUNT, Q.PROPID_MGMT_QUEUE_BYTES_IN_QUEUE, Q.PROPID_MGMT_QUEUE_STATE,
        Q.PROPID_MGMT_QUEUE_NEXTHOPS, Q.PROPID_MGMT_QUEUE_EOD_RESEND_COUNT, Q.PROPID_MGMT_QUEUE_SUBQUEUE_COUNT,
    )  # fmt: skip
    properties = ",".join(str(int(one)) for one in wanted)
    shown = await managed.calls(ADMIN, *(rf"info OS:MANAGED\private$\{name} {properties}" for name in names))
    assert shown == [
        ["info", rf"OS:MANAGED\private$\{name}", "0x00000000",
         [rf"MANAGED\private$\{name}", rf"DIRECT=OS:MANAGED\private$\{name}", "PRIVATE", "LOCAL",
          "YES" if number % 2 else "NO", "NO", 0 if number else 3, sizes[number], "LOCAL CONNECTION", None, None, 0]]
        for number, name in enumerate(names)
    ]  # fmt: skip


@pytest.mark.servers
async def test_an_administrator_sees_an_outgoing_queue_and_its_attempts_to_connect(managed: Managed) -> None:
    nobody = free_alias([managed.port])
    name = rf"TCP:{nobody}\private$\there"
    async with await managed.connect() as node:
        async with (
            await node.open_queue(f"DIRECT={name}", Access.SEND) as queue,
            node.transaction() as transaction,
        ):
            await queue.send(Message(b"first", recoverable=True), transaction=transaction)

        async def failed() -> bool:
            return (await node.queue(f"DIRECT={name}")).state == "disconnected"

        await holds(failed, 60, "an attempt to connect has failed")
    place, kind, state, hops, count, sequence, history = await managed.values(
        name, Q.PROPID_MGMT_QUEUE_LOCATION, Q.PROPID_MGMT_QUEUE_TYPE, Q.PROPID_MGMT_QUEUE_STATE,
        Q.PROPID_MGMT_QUEUE_NEXTHOPS, Q.PROPID_MGMT_QUEUE_MESSAGE_COUNT, Q.PROPID_MGMT_QUEUE_EOD_NEXT_SEQ,
        Q.PROPID_MGMT_QUEUE_CONNECTION_HISTORY,
    )  # fmt: skip
    assert (place, kind, state, hops, count) == ("REMOTE", "PRIVATE", "DISCONNECTED", None, 1)
    assert struct.unpack("<qII", bytes.fromhex(sequence))[1:] == (2, 1)
    statuses, times, errors, addresses = history
    assert statuses[-1] & 0x80000000
    assert len(statuses) == len(times) == len(errors) == len(addresses)
    assert addresses[-1] == [nobody]


@pytest.mark.servers
async def test_a_session_a_wrong_property_and_a_missing_queue_are_refused(managed: Managed) -> None:
    said = await managed.calls(
        ADMIN, "info session 1", "info machine 7", r"info OS:MANAGED\private$\none 1", "act session PAUSE",
        "act machine PAUSE", r"act OS:MANAGED\private$\none DELETE",
    )  # fmt: skip
    assert [one[:3] if one[0] == "info" else one[3] for one in said] == [
        ["info", "session", f"{ErrorCode.MQ_ERROR_INVALID_PARAMETER:#010x}"],
        ["info", "machine", f"{ErrorCode.MQ_ERROR_ILLEGAL_PROPID:#010x}"],
        ["info", r"OS:MANAGED\private$\none", f"{ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND:#010x}"],
        f"{ErrorCode.MQ_ERROR_INVALID_PARAMETER:#010x}",
        f"{ErrorCode.MQ_ERROR_INVALID_PARAMETER:#010x}",
        f"{ErrorCode.MQ_ERROR_INVALID_PARAMETER:#010x}",
    ]


@pytest.mark.servers
async def test_ndr64_is_not_offered_and_a_client_of_both_gets_ndr(managed: Managed) -> None:
    [[*_, reason]] = await managed.calls(ADMIN, "info machine 4", syntax="NDR64")
    assert "proposed transfer syntax not supported" in reason
    [[*_, values]] = await managed.calls(ADMIN, "info machine 4", syntax="both")
    assert values == ["CONNECTED"]


@pytest.mark.servers
async def test_actions_are_for_administrators_and_each_attempt_is_audited(managed: Managed) -> None:
    async with await managed.connect() as node:
        await (await node.open_queue(r"DIRECT=OS:elsewhere.invalid\private$\there", Access.SEND)).send(Message(b"one"))
        there = r"OS:elsewhere.invalid\private$\there"

        denied = f"{ErrorCode.MQ_ERROR_ACCESS_DENIED:#010x}"
        actions = (f"act {there} PAUSE", "act machine DISCONNECT", "act machine TIDY")
        for user in (SOMEBODY, ""):
            assert [one[3] for one in await managed.calls(user, *actions)] == [denied] * 3
        assert (await node.status()).online
        assert (await node.queue(f"DIRECT={there}")).state != "on hold"

        done = ["0x00000000"]
        assert [one[3] for one in await managed.calls(ADMIN, f"act {there} pause")] == done
        assert (await node.queue(f"DIRECT={there}")).state == "on hold"
        more = (f"act {there} EOD_RESEND", f"act {there} RESUME", "act machine TIDY", "act machine DISCONNECT")
        assert [one[3] for one in await managed.calls(ADMIN, *more)] == done * 4
        assert not (await node.status()).online
        assert (await node.queue(f"DIRECT={there}")).message_count == 1
        assert [one[3] for one in await managed.calls(ADMIN, "act machine CONNECT")] == done
        assert (await node.status()).online

    audited = managed.audited()
    assert [(one["who"], one["action"], one["outcome"], one["problem"]) for one in audited] == [
        *((who, action, "denied", "MQ_ERROR_ACCESS_DENIED")
          for who in (r"HOME\bob", "anonymous") for action in ("pause_queue", "take_offline", "tidy")),
        *((r"HOME\alice", action, "done", None)
          for action in ("pause_queue", "resend_queue", "resume_queue", "tidy", "take_offline", "bring_online")),
    ]  # fmt: skip
    assert {one["from"] for one in audited} == {"127.0.0.1"}
    assert {one["target"]["name"] for one in audited} == {f"DIRECT={there}", "MANAGED"}


@pytest.mark.servers
async def test_somebody_sees_what_access_lists_let_him_see(managed: Managed) -> None:
    async with await managed.connect() as node:
        await node.create_queue(r".\private$\secret")
    wanted = f"info OS:MANAGED\\private$\\secret {int(Q.PROPID_MGMT_QUEUE_MESSAGE_COUNT)}"
    machine = f"info machine {int(M.PROPID_MGMT_MSMQ_PRIVATEQ)}"
    denied = f"{ErrorCode.MQ_ERROR_ACCESS_DENIED:#010x}"
    assert [one[2] for one in await managed.calls("", wanted, machine)] == [denied, denied]
    assert [one[2] for one in await managed.calls(ADMIN, wanted, machine)] == ["0x00000000"] * 2


def test_only_what_is_switched_on_is_served() -> None:
    settings = qmnode.Settings().remote_read
    assert not settings.management
    assert not settings.enabled
