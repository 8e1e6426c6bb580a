"""Surveyed machines that lie: endless lists, hostile names, values of wrong types, answers that never end."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from mqenterprise.survey.declaring import declaration_of
from mqenterprise.survey.estate import LONGEST, Answer, Estate
from mqenterprise.survey.judgement import judge
from mqenterprise.survey.machines import MOST_QUEUES, Asking, ask_all
from mqenterprise.survey.report import document, page
from qmnode import QueueManager
from qmnode.dcerpc.server import service
from qmnode.directory.port import WorkgroupDirectory
from qmnode.remote_management.qmmgmt import ANNOTATION, GET_INFO, QMMGMT, GetInfoResponse, ManagementObjectType
from qmnode.remote_management.variants import Variant, variant, vector
from qmnode.remote_read.client_interfaces import RemoteReadOptions
from qmnode.remote_read.server import RemoteReadServer
from qmnode.settings.node import Settings
from qmnode.settings.remote_read import RemoteReadSettings
from qmnode.structures.enumerations import VariantType as V
from qmnode.structures.properties import ManagementMachineProperty as M
from qmnode.structures.properties import ManagementQueueProperty as Q
from tests.lab.addresses import free_alias
from tests.remote_read.conftest import random_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

EVIL = "private$\\<script>\u202e\n" + "x" * 2_000


@asynccontextmanager
async def lying(folder: Path, answer: Callable[[bool, int], Variant | None]) -> AsyncIterator[tuple[str, int]]:
    """A machine whose interface qmmgmt answers as the test says, by kind of object and property. None: never."""
    mapper = random_port()
    address = free_alias([mapper])
    own = RemoteReadSettings(enabled=True, address=address, port=0, endpoint_mapper_port=mapper)

    async def get_info(_: Any, request: Any) -> GetInfoResponse:
        is_machine = request.object.type == ManagementObjectType.MGMT_MACHINE
        values = [answer(is_machine, number) for number in request.properties]
        if None in values:
            await asyncio.Event().wait()
        return GetInfoResponse(values=values)

    async with QueueManager.open(folder / "lying", Settings(computer_name="LIAR", remote_read=own)) as manager:
        beside = {service(QMMGMT, {GET_INFO: get_info}): ANNOTATION}
        server = RemoteReadServer(manager, own, WorkgroupDirectory(), beside=beside)
        await server.start()
        try:
            yield address, mapper
        finally:
            await server.stop()


async def surveyed(address: str, mapper: int, timeout: float = 20.0) -> Estate:
    estate = Estate("Hostile")
    estate.machine("LIAR").host = address
    await ask_all(estate, Asking(RemoteReadOptions(endpoint_mapper_port=mapper), timeout=timeout))
    return estate


def is_shown_safely(estate: Estate) -> None:
    """The report and the declaration of it can be written, and have nothing of it as markup."""
    report = document(estate, judge(estate), 0.0, 0.0)
    assert page(report).count("<script>") == 1
    declaration_of(estate)


async def test_hostile_names_and_counts_are_cut_and_shown_as_text(tmp_path: Path) -> None:
    def answer(machine: bool, number: int) -> Variant:
        if machine:
            if number in (M.PROPID_MGMT_MSMQ_ACTIVEQUEUES, M.PROPID_MGMT_MSMQ_PRIVATEQ):
                return vector(V.VT_VECTOR_LPWSTR, [f"LIAR\\{EVIL}", "", "\\\\\\", "DIRECT=OS:other\\private$\\x"])
            if number == M.PROPID_MGMT_MSMQ_BYTES_IN_ALL_QUEUES:
                return variant(V.VT_I8, -(1 << 62))
            return variant(V.VT_LPWSTR, EVIL)
        kind = Q(number).variant_type
        if kind == V.VT_UI4:
            return variant(kind, 0xFFFFFFFF)
        return vector(kind, [EVIL] * 100) if kind == V.VT_VECTOR_LPWSTR else variant(kind, EVIL)

    async with lying(tmp_path, answer) as place:
        estate = await surveyed(*place)
    assert len(estate.queues) == 2
    for queue in estate.queues.values():
        assert len(queue.name) <= LONGEST and queue.name.isprintable()
        assert queue.messages == 0xFFFFFFFF if queue.name == "x" else queue.problem == "its name cannot be asked for"
        assert queue.sample is None
    assert len(estate.machine("LIAR").version) <= LONGEST
    assert len(estate.machine("LIAR").notes) == 5
    is_shown_safely(estate)


async def test_lists_without_an_end_are_cut_and_the_time_is_bounded(tmp_path: Path) -> None:
    names = [f"LIAR\\private$\\q{number}" for number in range(MOST_QUEUES + 500)]

    def answer(machine: bool, number: int) -> Variant | None:
        if machine:
            return vector(V.VT_VECTOR_LPWSTR, names) if number == M.PROPID_MGMT_MSMQ_PRIVATEQ else Variant()
        return None

    async with lying(tmp_path, answer) as place:
        estate = await surveyed(*place, timeout=6.0)
    liar = estate.machine("LIAR")
    assert liar.answer is Answer.ANSWERED
    assert len(estate.queues) == MOST_QUEUES
    assert liar.notes == [
        f"it names {len(names):,} private queues: only {MOST_QUEUES:,} were looked at",
        "it was asked for 6 s; the rest was not asked for",
    ]


def _nested() -> Variant:
    found = variant(V.VT_UI4, 1)
    for _ in range(50):
        found = vector(V.VT_VECTOR_VARIANT, [found])
    return found


@pytest.mark.parametrize(
    "value", [variant(V.VT_LPWSTR, "x"), variant(V.VT_BLOB, b"x"), _nested()], ids=["text", "octets", "nested"]
)
async def test_values_of_wrong_types_are_an_answer_that_is_none(tmp_path: Path, value: Variant) -> None:
    async with lying(tmp_path, lambda *_: value) as place:
        estate = await surveyed(*place)
    liar = estate.machine("LIAR")
    assert liar.answer is Answer.UNAVAILABLE
    assert liar.reason
    assert not estate.queues


@pytest.mark.parametrize("content", [b"\5\0\x0c\3" * 4_096, b"\0" * 65_536, b"HTTP/1.1 200 OK\r\n\r\n"])
async def test_a_stream_without_an_end_is_given_up(content: bytes) -> None:
    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(content)
                await writer.drain()
        except OSError:
            writer.close()

    mapper = random_port()
    address = free_alias([mapper])
    async with await asyncio.start_server(endless, address, mapper):
        estate = await surveyed(address, mapper)
    assert estate.machine("LIAR").answer is Answer.UNAVAILABLE
    assert estate.machine("LIAR").reason.startswith("it does not answer")
