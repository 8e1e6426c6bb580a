"""The endpoint mapper: where the interfaces are, for clients of others' making and our own (C706 appendix O)."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from impacket.dcerpc.v5 import epm, transport

from qmnode.dcerpc.client import RpcClient
from qmnode.dcerpc.endpoint_mapper import (
    ENDPOINT_MAPPER,
    FREE_HANDLE,
    LOOKUP,
    MAP,
    NOT_REGISTERED,
    FreeHandleRequest,
    InterfaceIdentifier,
    LookupRequest,
    LookupResponse,
    MapRequest,
    interface_of,
    port_of,
    tower_of,
)
from qmnode.dcerpc.errors import FaultStatus, RpcFault
from qmnode.dcerpc.ndr import NDR, NDR64, NULL_CONTEXT_HANDLE
from qmnode.remote_read.qm2qm import QM2QM
from qmnode.remote_read.qmcomm import QMCOMM
from qmnode.remote_read.remoteread import REMOTE_READ
from qmnode.structures.guid import ZERO_GUID, new_guid

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from qmnode.dcerpc.interface import SyntaxId
    from tests.remote_read.conftest import Remote

ANNOTATIONS = ["Message Queuing - QMRT V1", "Message Queuing - QM2QM V1", "Message Queuing - RemoteRead V1"]
EVERY = [QMCOMM.syntax, QM2QM.syntax, REMOTE_READ.syntax]
SAMBA_CLIENT = Path(__file__).with_name("samba_mapper_client.py")


@asynccontextmanager
async def mapper(remote: Remote, representation: object = NDR) -> AsyncIterator[RpcClient]:
    client = await RpcClient.connect(
        remote.address, remote.endpoint_mapper_port, (ENDPOINT_MAPPER,), representations=(representation,)
    )
    yield client
    client.abort()


def interfaces_of(response: LookupResponse) -> list[SyntaxId | None]:
    return [interface_of(entry.tower) for entry in response.entries if entry.tower is not None]


@pytest.mark.parametrize("representation", [NDR, NDR64], ids=lambda one: one.name)
async def test_every_interface_is_listed_with_its_port(remote: Remote, representation: object) -> None:
    async with mapper(remote, representation) as client:
        response = await client.call(ENDPOINT_MAPPER, LOOKUP, LookupRequest())
    assert (response.status, response.entry_handle) == (0, NULL_CONTEXT_HANDLE)
    assert interfaces_of(response) == EVERY
    assert [entry.annotation for entry in response.entries] == ANNOTATIONS
    assert {port_of(entry.tower) for entry in response.entries} == {remote.port}


async def test_a_list_is_read_in_parts(remote: Remote) -> None:
    async with mapper(remote) as client:
        first = await client.call(ENDPOINT_MAPPER, LOOKUP, LookupRequest(max_entries=1))
        assert interfaces_of(first) == EVERY[:1] and first.entry_handle != NULL_CONTEXT_HANDLE
        rest = LookupRequest(max_entries=2, entry_handle=first.entry_handle)
        second = await client.call(ENDPOINT_MAPPER, LOOKUP, rest)
        assert interfaces_of(second) == EVERY[1:] and second.entry_handle == NULL_CONTEXT_HANDLE
        with pytest.raises(RpcFault) as caught:
            await client.call(ENDPOINT_MAPPER, LOOKUP, rest)
        assert caught.value.status == FaultStatus.CONTEXT_MISMATCH


async def test_a_list_that_is_not_read_to_its_end_is_given_up(remote: Remote) -> None:
    async with mapper(remote) as client:
        first = await client.call(ENDPOINT_MAPPER, LOOKUP, LookupRequest(max_entries=1))
        free = FreeHandleRequest(entry_handle=first.entry_handle)
        freed = await client.call(ENDPOINT_MAPPER, FREE_HANDLE, free)
        assert (freed.status, freed.entry_handle) == (0, NULL_CONTEXT_HANDLE)
        with pytest.raises(RpcFault):
            await client.call(ENDPOINT_MAPPER, FREE_HANDLE, free)
        (association,) = remote.server.endpoint_mapper.associations._groups.values()
        assert len(association.handles) == 0


def identifier(syntax: SyntaxId, major: int = 1, minor: int = 0) -> InterfaceIdentifier:
    return InterfaceIdentifier(uuid=syntax.uuid, major=major, minor=minor)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"inquiry_type": 1, "interface": identifier(QM2QM.syntax)}, EVERY[1:2]),
        ({"inquiry_type": 1, "interface": identifier(QM2QM.syntax, 7)}, EVERY[1:2]),
        ({"inquiry_type": 1, "interface": identifier(QM2QM.syntax, 7), "version_option": 3}, []),
        ({"inquiry_type": 1, "interface": identifier(QM2QM.syntax, 1, 1), "version_option": 2}, []),
        ({"inquiry_type": 1, "interface": identifier(QM2QM.syntax, 1, 1), "version_option": 4}, EVERY[1:2]),
        ({"inquiry_type": 1, "interface": identifier(QM2QM.syntax, 1, 1), "version_option": 5}, EVERY[1:2]),
        ({"inquiry_type": 1, "interface": identifier(QM2QM.syntax), "version_option": 9}, []),
        ({"inquiry_type": 1, "interface": None}, []),
        ({"inquiry_type": 2, "object": ZERO_GUID}, EVERY),
        ({"inquiry_type": 2, "object": new_guid()}, []),
        ({"inquiry_type": 3, "object": ZERO_GUID, "interface": identifier(QMCOMM.syntax)}, EVERY[:1]),
        ({"inquiry_type": 9}, []),
    ],
)
async def test_a_list_may_be_of_some(remote: Remote, wanted: dict[str, object], found: list[SyntaxId]) -> None:
    async with mapper(remote) as client:
        response = await client.call(ENDPOINT_MAPPER, LOOKUP, LookupRequest(**wanted))
    assert interfaces_of(response) == found
    assert response.status == (0 if found else NOT_REGISTERED)


async def test_nobody_keeps_more_lists_than_there_are_handles(remote: Remote) -> None:
    async with mapper(remote) as client:
        calls = [client.call(ENDPOINT_MAPPER, LOOKUP, LookupRequest(max_entries=0)) for _ in range(1_000)]
        assert {(await call).status for call in calls} == {NOT_REGISTERED}
        (association,) = remote.server.endpoint_mapper.associations._groups.values()
        assert len(association.handles) == 1_000
    map_nothing = MapRequest(tower=tower_of(QM2QM.syntax, 0, "0.0.0.0"), max_towers=0)
    async with mapper(remote) as client:
        assert (await client.call(ENDPOINT_MAPPER, MAP, map_nothing)).status == NOT_REGISTERED


async def test_impacket_lists_them(remote: Remote) -> None:
    def work() -> list[tuple[bytes, str]]:
        binding = rf"ncacn_ip_tcp:{remote.address}[{remote.endpoint_mapper_port}]"
        dce = transport.DCERPCTransportFactory(binding).get_dce_rpc()
        dce.connect()
        entries = epm.hept_lookup(remote.address, dce=dce)
        dce.disconnect()
        return [(entry["annotation"], epm.PrintStringBinding(entry["tower"]["Floors"])) for entry in entries]

    binding = f"ncacn_ip_tcp:{remote.address}[{remote.port}]"
    listed = await asyncio.wait_for(asyncio.to_thread(work), 60)
    assert listed == [(f"{annotation}\0".encode(), binding) for annotation in ANNOTATIONS]


@pytest.mark.servers
@pytest.mark.parametrize("options", ["", ",bigendian"])
async def test_samba_lists_and_maps_them(remote: Remote, tmp_path: Path, options: str) -> None:
    configuration = tmp_path / "empty.conf"
    configuration.touch()
    called = await asyncio.create_subprocess_exec(
        "/usr/bin/python3", str(SAMBA_CLIENT), remote.address, str(remote.endpoint_mapper_port), str(configuration),
        options,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await asyncio.wait_for(called.communicate(), 120)
    assert called.returncode == 0, output.decode(errors="replace")
    assert output.decode().splitlines() == [
        f"0 {ANNOTATIONS}",
        f"0 {ANNOTATIONS[:1]} False",
        f"0 {ANNOTATIONS[1:2]} False",
        f"0 {ANNOTATIONS[2:]} True",
        "0 1", "0 1", "0 1",
    ]  # fmt: skip
