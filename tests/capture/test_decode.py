"""``qmnode decode``: trees, lines, JSON, checks and exit codes."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from qmnode.capture.explain import Explainer
from qmnode.capture.packet_as_text import Body, plain, tree
from qmnode.capture.read_files import Captured, read_packets
from qmnode.commands.command_table import COMMANDS, app
from qmnode.structures.packets import ConnectionParameters, ConnectionParametersHeader
from qmnode.structures.user_message import DirectQueueFormatName, MessagePropertiesHeader, UserHeader, UserMessage
from tests.capture.builders import pcap, tcp_segment
from tests.conformance import session
from tests.conformance.frames import FRAMES
from tests.lab.cases import cases

GOOD = ConnectionParameters(
    connection_parameters_header=ConnectionParametersHeader(
        recoverable_ack_timeout=1000, ack_timeout=120000, window_size=64
    )
).write()
BAD = GOOD[:24] + b"\1\0\0\0" + GOOD[28:]
"""With an AckTimeout of 1."""


def decode(*arguments: str | Path, data: bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["decode", *map(str, arguments)], input=data)


def documents(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def lines_of(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The lines of a document's tree by structure and name."""
    found: dict[str, dict[str, Any]] = {}

    def walk(line: dict[str, Any], path: str) -> None:
        for child in line.get("children", []):
            found[f"{path}.{child['name']}".lstrip(".")] = child
            walk(child, child["name"])

    walk(document["structure"], "")
    return found


def test_the_capture_of_the_specification_is_what_its_frames_make() -> None:
    assert session.PATH.read_bytes() == session.capture()


@pytest.fixture(scope="module")
def specification() -> list[dict[str, Any]]:
    return documents(decode(session.PATH, "--json"))


def test_the_specifications_capture_is_explained_packet_by_packet(specification: list[dict[str, Any]]) -> None:
    assert [(item["type"], item["direction"], item["frames"], item["length"]) for item in specification] == [
        ("Ping", "client-to-server", [1], 24),
        ("Ping", "server-to-client", [2], 24),
        ("EstablishConnection", "client-to-server", [3], 572),
        ("EstablishConnection", "server-to-client", [4], 572),
        ("ConnectionParameters", "client-to-server", [5], 32),
        ("ConnectionParameters", "server-to-client", [6], 32),
        ("UserMessage", "client-to-server", [7], 2224),
        ("SessionAck", "server-to-client", [8], 36),
    ]
    assert {item["connection"] for item in specification[2:]} == {1}
    assert specification[0]["source"] == "192.0.2.1:4057"
    assert specification[0]["time"] == "2016-07-14T00:00:00.001000000Z"
    assert [item["number"] for item in specification] == list(range(1, 9))


def test_every_byte_of_the_specifications_packets_is_explained(specification: list[dict[str, Any]]) -> None:
    for item in specification:
        position = 0

        def leaves(line: dict[str, Any]) -> Any:
            children = line.get("children", [])
            return [leaf for child in children for leaf in leaves(child)] if children else [line]

        for leaf in leaves(item["structure"]):
            assert leaf["offset"] == position, leaf
            position += leaf["width"]
        assert position == item["length"]


def test_frame_7_means_what_its_bytes_say(specification: list[dict[str, Any]]) -> None:
    # The section's text has 20 where the bytes say 2000 (AllocationBodySize), RC4 as 0x6601 where they say 0x6801,
    # no acknowledgments where they ask for all, a SentTime of 2006 where they repeat the signature, one byte of
    # padding where there are two, and a TimeToReachQueue that is not its own hexadecimal form.
    lines = lines_of(specification[6])
    text = {name: line.get("text") for name, line in lines.items()}
    assert text["UserHeader.DestinationQueue"] == r"DIRECT=OS:a04bm02\q"
    assert text["BaseHeader.TimeToReachQueue"] == "345600 (0x00054600) 4 d"
    assert str(text["UserHeader.TimeToBeReceived"]).endswith("for ever")
    assert text["SecurityHeader.SecurityID"] == "28 bytes S-1-5-21-3181267629-1039849782-3663111779-1000"
    assert text["MessagePropertiesHeader.MessageClass"] == "0x0000 MQMSG_CLASS_NORMAL"
    assert "VT_BSTR" in str(text["MessagePropertiesHeader.BodyType"])
    assert text["MessagePropertiesHeader.EncryptionAlgorithm"] == "0x00006801 RC4"
    assert lines["MessagePropertiesHeader.AllocationBodySize"]["value"] == 2000
    assert lines["MessagePropertiesHeader.Label"]["value"] == "mqsender label"
    assert lines["MessagePropertiesHeader.Padding"]["width"] == 2
    assert lines["UserHeader.SourceQueueManager"]["text"] == "{557358d1-9150-9595-4997-b6e611ea26c6}"
    bits = {bit["name"]: bit["value"] for bit in lines["MessagePropertiesHeader.Flags"]["bits"]}
    assert {bits[name] for name in ("PA", "PR", "NA", "NR")} == {1}
    notes = {(note["field"], note["section"]) for note in specification[6]["notes"]}
    assert notes == {
        ("Flags", "MS-MQMQ 2.2.20.6"),
        ("BodyType", "MS-MQMQ 2.2.19.3"),
        ("AdminQueue", "MS-MQMQ 2.2.19.2"),
        ("SentTime", "MS-MQMQ 2.2.19.2"),
    }
    assert specification[6]["findings"] == []


def test_frame_4_does_not_give_back_what_frame_3_asked(specification: list[dict[str, Any]]) -> None:
    # Its texts print the GUIDs of frame 3, its bytes have two others: the example was edited.
    assert [(item["field"], item["offset"]) for item in specification[3]["findings"]] == [
        ("ClientGuid", 20),
        ("ServerGuid", 36),
    ]
    assert [number for number, item in enumerate(specification, 1) if item["findings"]] == [4]


def test_the_keys_of_a_document_are_an_interface(specification: list[dict[str, Any]]) -> None:
    assert list(specification[0]) == [
        "number", "type", "time", "transport", "connection", "direction", "source", "destination", "frames", "offset",
        "length", "damage", "error", "findings", "notes", "structure",
    ]  # fmt: skip
    assert list(specification[3]["findings"][0]) == [
        "structure", "field", "offset", "sentence", "section", "handling", "why",
    ]  # fmt: skip
    line = lines_of(specification[6])["BaseHeader.Flags"]
    assert list(line) == ["name", "offset", "width", "value", "text", "meaning", "bits"]
    assert list(line["bits"][0]) == ["name", "value", "shift", "width", "text", "meaning"]


def test_a_tree_names_fields_values_meanings_offsets_and_sections() -> None:
    output = decode(session.PATH).stdout
    assert "#7 UserMessage Packet  2016-07-14T00:00:00.007000000Z  client -> server" in output
    assert "0040 DestinationQueue: DIRECT=OS:a04bm02\\q" in output
    assert "SecurityHeader" in output
    assert "[MS-MQMQ 2.2.20.6]" in output
    assert "...................111.......... DQ = 7 direct" in output
    assert "aaaaaaaa" in output
    assert "broken  EstablishConnectionHeader.ClientGuid at offset 20: must be that of the request" in output


def test_the_first_line_of_a_tree_names_the_section_of_the_packet() -> None:
    heads = [line for line in decode(session.PATH).stdout.splitlines() if line.startswith("#")]
    assert [head.rpartition("  ")[2] for head in heads] == [
        "[MS-MQQB 2.2.7]", "[MS-MQQB 2.2.7]", "[MS-MQQB 2.2.3]", "[MS-MQQB 2.2.3]",
        "[MS-MQQB 2.2.2]", "[MS-MQQB 2.2.2]", "[MS-MQMQ 2.2.20]", "[MS-MQQB 2.2.6]",
    ]  # fmt: skip


def test_a_tree_on_a_terminal_is_the_same_with_colours() -> None:
    explainer = Explainer()
    with session.PATH.open("rb") as file:
        for item in read_packets(file):
            assert isinstance(item, Captured)
            found = tree(explainer.explain(item), 1, Body.HEX)
            console = Console(file=StringIO(), width=10_000, color_system=None, highlight=False)
            console.print(found)
            printed = console.file.getvalue()  # type: ignore[attr-defined]
            assert [line.rstrip() for line in printed.splitlines()] == [line.rstrip() for line in plain(found)]


def test_an_output_that_lacks_letters_gets_escapes() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", "from qmnode.cli import main; main()", "decode", str(session.PATH)],
        capture_output=True,
        env={"PYTHONIOENCODING": "ascii", "PYTHONPATH": str(Path.cwd())},
        timeout=240,
    )
    assert answer.returncode == 0, answer.stderr
    assert b"\\u251c" in answer.stdout


def test_a_summary_has_one_line_for_each_packet() -> None:
    lines = decode(session.PATH, "--summary").stdout.splitlines()
    assert len(lines) == 8
    assert "id 2286 to DIRECT=OS:a04bm02\\q  label 'mqsender label'  body of 2000 bytes" in lines[6]


def test_a_limit_stops_early() -> None:
    assert len(documents(decode(session.PATH, "--json", "--limit", "3"))) == 3


def test_bodies_as_bytes_and_as_text() -> None:
    assert "00de  61 00 61 00" in decode(session.PATH, "--body", "hex").stdout
    assert "a" * 1000 in decode(session.PATH, "--body", "text").stdout
    whole = documents(decode(session.PATH, "--json", "--body", "hex"))[6]
    assert lines_of(whole)["MessagePropertiesHeader.MessageBody"]["value"] == "6100" * 1000


def test_other_ports() -> None:
    capture = pcap([tcp_segment(GOOD, 1, ports=(40000, 11801))])
    assert documents(decode("-", "--json", data=capture)) == []
    assert len(documents(decode("-", "--json", "--port", "1801", "--port", "11801", data=capture))) == 1


@pytest.mark.parametrize("data", [GOOD, GOOD.hex(" ").encode(), pcap([tcp_segment(GOOD, 1)])])
def test_check_accepts_what_keeps_every_must(data: bytes) -> None:
    result = decode("-", "--check", data=data)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "1 packet, 0 of them broken" in result.stderr


def test_check_names_what_is_broken_and_nothing_else() -> None:
    result = decode("-", "--check", data=GOOD + BAD + GOOD)
    assert result.exit_code == 1
    (line,) = result.stdout.splitlines()
    assert line.startswith("#2 ConnectionParameters Packet")
    assert "ConnectionParametersHeader.AckTimeout at offset 24: must not be 0x00000001 (MS-MQQB 2.2.2.1)" in line


@pytest.mark.parametrize(
    ("packet", "named"),
    [
        (b"\x11" + GOOD[1:], "BaseHeader.VersionNumber at offset 0: must be 0x10, is 0x11 (MS-MQMQ 2.2.19.1)"),
        (GOOD[:18] + b"\x09" + GOOD[19:], "InternalHeader.Flags at offset 18: PT is 9, which is no type of packet "
         "(MS-MQQB 2.2.1)"),
    ],
)  # fmt: skip
def test_check_names_the_section_also_of_what_is_no_packet(packet: bytes, named: str) -> None:
    assert named in decode("-", "--check", data=packet).stdout
    (document,) = documents(decode("-", "--json", data=packet))
    assert document["error"]["section"] == named.rpartition("(")[2].rstrip(")")


def test_check_with_json_gives_documents_and_the_exit_code() -> None:
    result = decode("-", "--check", "--json", data=GOOD + BAD)
    assert result.exit_code == 1
    assert [len(item["findings"]) for item in documents(result)] == [0, 1]


def test_a_broken_packet_in_a_stream_is_told_and_the_next_one_read() -> None:
    hostile = bytearray(GOOD)
    hostile[18] = 9  # a type of packet that there is none of
    capture = pcap([tcp_segment(bytes(hostile), 1), tcp_segment(GOOD, 33)])
    result = decode("-", "--json", data=capture)
    assert result.exit_code == 0
    first, second = documents(result)
    assert (first["type"], first["error"]["structure"], first["error"]["field"]) == (None, "InternalHeader", "Flags")
    assert second["type"] == "ConnectionParameters"
    assert decode("-", "--check", data=capture).exit_code == 1


def test_a_stretch_between_packets_breaks_the_signature() -> None:
    (_, stray, last) = documents(decode("-", "--json", data=GOOD + b"stray bytes, no packet" + GOOD))
    assert stray["error"]["structure"] == "BaseHeader"
    assert stray["damage"].startswith("22 bytes that begin no packet")
    assert last["type"] == "ConnectionParameters"


def test_what_the_capture_lost_is_nobodys_fault() -> None:
    capture = pcap([tcp_segment(GOOD, 1), tcp_segment(GOOD[20:] + GOOD, 53)])
    result = decode("-", "--check", data=capture)
    assert result.exit_code == 0
    assert "(20 bytes before it are missing from the capture)" in decode("-", "--summary", data=capture).stdout


@pytest.mark.parametrize("cut", [20, 500, 1650])
def test_a_packet_that_says_it_is_longer_than_its_file(cut: int) -> None:
    result = decode("-", "--check", data=FRAMES[6].data[:cut])
    assert result.exit_code == 1
    assert "#1 no packet" in result.stdout


def test_text_from_the_network_cannot_steer_the_terminal() -> None:
    label = "\x1b[2J\u202edrowssap\ud800"
    packet = UserMessage(
        user_header=UserHeader(
            source_queue_manager=b"\1" * 16,  # type: ignore[arg-type]
            message_id=1,
            destination_queue=DirectQueueFormatName(direct_format_name="OS:\x1b[31mhost\\q"),
        ),
        message_properties_header=MessagePropertiesHeader(label=label, body_type=8, message_body=b"\x1b\x00[\x00"),
    ).write()
    for options in ((), ("--summary",), ("--body", "text"), ("--check",), ("--json",)):
        output = decode("-", *options, data=packet).stdout
        assert "\x1b" not in output
        assert "\u202e" not in output


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["decode", str(session.PATH)], 0),
        (["decode", str(session.PATH), "--check"], 1),
        (["decode", "/nonexistent/file"], 1),
        (["decode", "/"], 1),
        (["decode", str(session.PATH), "--format", "capture", "--summary"], 0),
        (["decode", str(session.PATH), "--format", "hex"], 1),
        (["decode", str(session.PATH), "--format", "odd"], 2),
        (["decode", str(session.PATH), "--port", "0"], 2),
        (["decode"], 2),
        (["decode", str(session.PATH), "--no-such-option"], 2),
        (["no-such-command"], 2),
        (["--help"], 0),
        (["decode", "--help"], 0),
    ],
)
def test_exit_codes_of_the_real_command(arguments: list[str], code: int) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", "from qmnode.cli import main; main()", *arguments], capture_output=True, timeout=240
    )
    assert answer.returncode == code, answer.stderr
    assert b"Traceback" not in answer.stderr


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    command = f"{sys.executable} -c 'from qmnode.cli import main; main()' decode {session.PATH} --body hex | head -1"
    answer = subprocess.run(["bash", "-c", command], capture_output=True, timeout=240)
    assert answer.stdout.count(b"\n") == 1
    assert answer.stderr == b""


@pytest.mark.parametrize("arguments", [["--summary"], ["--json"], ["--body", "hex"]])
def test_a_full_disk_is_blamed_on_the_output_not_on_the_file(arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        answer = subprocess.run(
            [sys.executable, "-c", "from qmnode.cli import main; main()", "decode", str(session.PATH), *arguments],
            stdout=full, stderr=subprocess.PIPE, timeout=240,
        )  # fmt: skip
    assert answer.returncode == 1
    assert answer.stderr.startswith(b"qmnode decode: the output cannot be written: No space left on device")
    assert b"Traceback" not in answer.stderr


def test_a_cut_capture_shows_what_there_is_and_fails() -> None:
    result = decode("-", "--summary", data=session.capture()[:-3])
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 7
    assert "the file ends inside record 8" in result.stderr


def test_a_file_without_packets_says_so() -> None:
    result = decode("-", data=pcap([]))
    assert (result.exit_code, result.stdout) == (0, "")
    assert "there are no packets in it" in result.stderr


def test_help_imports_no_command() -> None:
    script = (
        "import sys; from typer.testing import CliRunner; from qmnode.commands.command_table import app;"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0;"
        "print([name for name in sys.modules if name.startswith(('qmnode.commands.', 'qmnode.capture'))])"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    shared = {f"qmnode.commands.{name}" for name in ("command_table", "error_line", "fast_start", "registry")}
    assert set(ast.literal_eval(answer.stdout)) == shared


@cases("name", COMMANDS)
def test_every_command_of_the_table_can_be_loaded(name: str) -> None:
    assert COMMANDS[name].load(name).name == name
    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.stdout
