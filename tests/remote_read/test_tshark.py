"""tshark, which is not ours, recognises our associations and methods."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from typing import TYPE_CHECKING

import dpkt
import pytest

from qmnode.remote_read.client_interfaces import RemoteNode, RemoteReadOptions
from qmnode.remote_read.qm2qm import QM2QM
from qmnode.remote_read.qmcomm import QMCOMM
from qmnode.remote_read.remoteread import REMOTE_READ
from qmnode.structures.guid import guid_to_text
from qmnode.structures.names import parse_single_format_name
from tests.remote_read.conftest import THERE, serving
from tests.remote_read.foreign import NDR64

if TYPE_CHECKING:
    from pathlib import Path

    from tests.remote_read.conftest import Remote

pytestmark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
SERVER_PORT = 2103


class Relay:
    """Passes bytes on between a client and a port, and writes down what it passed."""

    def __init__(self, address: str, port: int) -> None:
        self.target = address, port
        self.passed: list[tuple[int, bool, bytes]] = []
        """Connection, whether from the client, bytes."""
        self._connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        number = self._connections
        there_reader, there_writer = await asyncio.open_connection(*self.target)

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter, from_client: bool) -> None:
            while data := await source.read(65_536):
                self.passed.append((number, from_client, data))
                sink.write(data)
            sink.close()

        await asyncio.gather(copy(reader, there_writer, True), copy(there_reader, writer, False))

    def write(self, path: Path) -> None:
        """A capture with each piece as a segment."""
        sequences: dict[tuple[int, bool], int] = {}
        with path.open("wb") as file:
            capture = dpkt.pcap.Writer(file, linktype=dpkt.pcap.DLT_RAW)
            for place, (number, from_client, data) in enumerate(self.passed):
                ports = (40_000 + number, SERVER_PORT) if from_client else (SERVER_PORT, 40_000 + number)
                hosts = (b"\x7f\0\0\1", b"\x7f\0\0\2")
                for start in range(0, len(data), 1400):
                    piece = data[start : start + 1400]
                    own = sequences.get((number, from_client), 1)
                    other = sequences.get((number, not from_client), 1)
                    sequences[number, from_client] = own + len(piece)
                    segment = dpkt.tcp.TCP(
                        sport=ports[0], dport=ports[1], seq=own, ack=other, flags=dpkt.tcp.TH_ACK | dpkt.tcp.TH_PUSH,
                        data=piece, win=65_535,
                    )  # fmt: skip
                    source, target = hosts if from_client else hosts[::-1]
                    packet = dpkt.ip.IP(src=source, dst=target, p=dpkt.ip.IP_PROTO_TCP, data=segment)
                    packet.len = len(packet)
                    capture.writepkt(bytes(packet), ts=1.7e9 + place / 1000)


def dissected(path: Path, *fields: str) -> list[list[str]]:
    """What tshark says: the values of the fields, packet by packet."""
    command = ["tshark", "-r", str(path), "-d", f"tcp.port=={SERVER_PORT},dcerpc", "-Y", "dcerpc", "-T", "fields"]
    for field in fields:
        command += ["-e", field]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return [line.split("\t") for line in ended.stdout.splitlines()]


@pytest.mark.parametrize("older", [False, True], ids=["RemoteRead", "qm2qm"])
async def test_tshark_recognises_associations_opnums_and_nothing_malformed(tmp_path: Path, older: bool) -> None:
    async with serving(tmp_path, older=older) as remote:
        await recognised(remote, tmp_path, older=older)


async def recognised(remote: Remote, tmp_path: Path, *, older: bool) -> None:
    """An older node refuses the bind of RemoteRead, and is read over a second connection."""
    await remote.send(b"one" * 4000, b"two")
    relay = Relay(remote.address, remote.port)
    server = await asyncio.start_server(relay.serve, remote.address, 0)
    port = server.sockets[0].getsockname()[1]
    remote.server.server.port = port  # what clients are told, so that they stay on this way
    options = RemoteReadOptions(endpoint_mapper_port=0, port=port)
    async with await RemoteNode.connect(remote.address, options) as node:
        queue = await node.open_queue(parse_single_format_name(THERE))
        await queue.receive(0)
        async with queue.cursor() as cursor:
            await cursor.peek(0)
        await queue.peek_by_lookup_id(0, "last")
        await queue.purge()
    server.close()
    path = tmp_path / "remote.pcap"
    relay.write(path)
    rows = dissected(path, "dcerpc.pkt_type", "dcerpc.cn_bind_to_uuid", "dcerpc.cn_bind_trans_id", "dcerpc.opnum")
    bound = {uuid for row in rows for uuid in row[1].split(",") if uuid}
    interfaces = (REMOTE_READ, QMCOMM, QM2QM) if older else (REMOTE_READ,)
    assert bound == {guid_to_text(one.syntax.uuid) for one in interfaces}
    assert NDR64[0].lower() in {uuid for row in rows for uuid in row[2].split(",")}
    kinds = [kind for row in rows for kind in row[0].split(",")]
    assert kinds.count("11") == kinds.count("12") == 1 + older
    assert kinds.count("0") >= 9 and kinds.count("2") >= 9 and "3" not in kinds
    opnums = {int(opnum) for row in rows for opnum in row[3].split(",") if opnum}
    assert opnums == ({1, 2, 3, 4, 6, 8, 9, 10, 31} if older else {2, 3, 4, 5, 6, 7, 9})
    assert all(not "".join(row).strip() for row in dissected(path, "_ws.malformed"))
