"""TCP streams: order, loss, reuse, wrap, limits; all through whole captures, as a user sees them."""

from __future__ import annotations

from itertools import permutations

import pytest

from qmnode.capture.read_files import SourceOptions
from qmnode.capture.streams import StreamLimits
from tests.capture.builders import ACK, FIN, RST, SYN, follow, packet, tcp_segment

ONE, TWO, THREE = packet(40, 1), packet(40, 2), packet(40, 3)


def stream(*parts: tuple[int, bytes], start: int = 1000, reverse: bool = False) -> list[bytes]:
    """A SYN, then segments at these positions of the stream."""
    opening = tcp_segment(b"", start, flags=SYN | (ACK if reverse else 0), reverse=reverse)
    return [opening, *(tcp_segment(data, start + 1 + at, reverse=reverse) for at, data in parts)]


def whole(*captured: object) -> list[bytes]:
    packets = list(captured)
    assert all(item.damage is None for item in packets)  # type: ignore[attr-defined]
    return [item.data for item in packets]  # type: ignore[attr-defined]


def test_packets_that_span_segments_and_segments_with_several_packets() -> None:
    data = ONE + TWO + THREE
    found = follow(*stream((0, data[:10]), (10, data[10:70]), (70, data[70:])))
    assert whole(*found) == [ONE, TWO, THREE]
    assert [item.origin.frames for item in found] == [(2, 3), (3, 4), (4,)]
    assert [item.origin.offset for item in found] == [0, 40, 80]


def test_both_directions_are_told_apart() -> None:
    found = follow(*stream((0, ONE)), *stream((0, TWO), reverse=True, start=77))
    assert [(item.route.from_client, item.route.source, item.data) for item in found if item.route] == [
        (True, "10.0.0.1:49759", ONE),
        (False, "10.0.0.2:1801", TWO),
    ]
    assert {item.route.connection for item in found if item.route} == {1}


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_segments_out_of_order(order: tuple[int, ...]) -> None:
    data = ONE + TWO + THREE
    parts = [(0, data[:50]), (50, data[50:90]), (90, data[90:])]
    found = follow(*stream(*(parts[index] for index in order)))
    assert whole(*found) == [ONE, TWO, THREE]


def test_retransmissions_and_overlaps_are_given_once() -> None:
    data = ONE + TWO + THREE
    found = follow(
        *stream(
            (0, data[:50]),
            (0, data[:50]),
            (30, data[30:60]),
            (90, data[90:]),
            (90, data[90:100]),
            (80, data[80:]),
            (59, b"?"),
            (10, data[10:75]),
            (60, data[60:95]),
        )
    )
    assert whole(*found) == [ONE, TWO, THREE]


def test_the_first_copy_of_overlapping_bytes_counts() -> None:
    assert whole(*follow(*stream((0, ONE[:20]), (10, b"\xff" * 10 + ONE[20:])))) == [ONE]


@pytest.mark.parametrize("start", [0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFF0, 0xFFFFFFB0, 0x7FFFFFF0])
def test_sequence_numbers_wrap(start: int) -> None:
    data = ONE + TWO + THREE
    assert whole(*follow(*stream((90, data[90:]), (0, data[:50]), (50, data[50:90]), start=start))) == [ONE, TWO, THREE]


def test_a_lost_segment_is_told_and_the_next_packet_is_found_by_length() -> None:
    big = packet(1000, 5)
    data = ONE + big + TWO
    found = follow(*stream((0, data[:200]), (300, data[300:])))
    assert [item.damage for item in found] == [
        None,
        "160 of its 1000 bytes are there, then 100 bytes are missing from the capture",
        None,
    ]
    assert (found[0].data, found[1].data, found[2].data) == (ONE, big[:160], TWO)
    assert found[1].origin.offset == 40
    assert found[2].origin.offset == 1040


def test_a_lost_beginning_of_a_packet_is_stepped_over_to_the_next_signature() -> None:
    data = ONE + TWO + THREE
    found = follow(*stream((0, ONE), (50, data[50:])))
    assert [item.data for item in found] == [ONE, TWO[10:], THREE]
    assert found[1].damage == "30 bytes that begin no packet (10 bytes before it are missing from the capture)"


def test_a_loss_longer_than_the_packet_it_begins_in() -> None:
    data = ONE + TWO + THREE + ONE
    found = follow(*stream((0, data[:20]), (60, data[60:])))
    assert [(item.damage is None, item.data) for item in found] == [
        (False, ONE[:20]),
        (False, TWO[20:]),
        (True, THREE),
        (True, ONE),
    ]


def test_several_losses_in_one_packet() -> None:
    big = packet(1000, 5)
    data = big + ONE
    found = follow(*stream((0, data[:100]), (200, data[200:300]), (600, data[600:])))
    assert [item.data for item in found] == [big[:100], ONE]


def test_a_capture_that_begins_in_the_middle_of_a_stream() -> None:
    data = ONE + TWO + THREE
    found = follow(tcp_segment(data[10:50], 5000), tcp_segment(data[50:], 5040))
    assert found[0].damage == "30 bytes that begin no packet (the capture begins in the middle of a stream)"
    assert [item.data for item in found[1:]] == [TWO, THREE]
    assert found[1].route is not None
    assert not found[1].route.from_start
    assert found[1].route.from_client


def test_a_capture_that_begins_between_packets() -> None:
    assert whole(*follow(tcp_segment(ONE, 1), tcp_segment(TWO, 41, reverse=True))) == [ONE, TWO]


def test_ports_that_are_used_again_are_another_connection() -> None:
    first = [*stream((0, ONE)), tcp_segment(b"", 1041, flags=FIN | ACK)]
    second = stream((0, TWO), start=90000) + stream((0, THREE), start=90000, reverse=True)
    found = follow(*first, *second)
    assert whole(*found) == [ONE, TWO, THREE]
    assert [item.route.connection for item in found if item.route] == [1, 2, 2]


def test_a_syn_that_is_sent_again_opens_no_connection() -> None:
    opening, segment = stream((0, ONE))
    found = follow(opening, opening, segment, opening, tcp_segment(TWO, 1041))
    assert [item.route.connection for item in found if item.route] == [1, 1]


def test_a_new_syn_ends_the_old_connection_in_the_middle_of_a_packet() -> None:
    found = follow(*stream((0, ONE[:20])), *stream((0, TWO), start=5))
    assert found[0].damage == "20 of its 40 bytes are there, then the stream ends"
    assert found[1].data == TWO


def test_a_reset_ends_both_directions() -> None:
    found = follow(*stream((0, ONE[:30])), *stream((0, TWO[:30]), reverse=True), tcp_segment(b"", 1031, flags=RST))
    assert [item.damage for item in found] == ["30 of its 40 bytes are there, then the stream ends"] * 2


def test_a_fin_ends_its_direction_once_all_before_it_is_there() -> None:
    opening, first, second = stream((0, ONE[:30]), (30, ONE[30:] + TWO[:5]))
    found = follow(opening, tcp_segment(b"", 1046, flags=FIN | ACK), second, first)
    assert found[0].data == ONE
    assert found[1].damage == "5 bytes that begin no packet (it follows a packet that was whole)"
    assert found[1].origin.frames == (3,)


def test_data_after_the_end_is_no_new_connection() -> None:
    found = follow(*stream((0, ONE)), tcp_segment(b"", 1041, flags=FIN | ACK), tcp_segment(ONE, 1001))
    assert len(found) == 1


def test_data_with_the_syn() -> None:
    assert whole(*follow(tcp_segment(ONE[:10], 1, flags=SYN), tcp_segment(ONE[10:], 12))) == [ONE]


def test_keep_alives_bring_nothing() -> None:
    assert whole(*follow(*stream((0, ONE), (39, b"\0"), (39, b""), (40, TWO)))) == [ONE, TWO]


def test_when_both_ports_are_ours_the_answer_to_the_syn_tells_the_server() -> None:
    ports = (1801, 1801)
    answer = tcp_segment(b"", 1, flags=SYN | ACK, reverse=True, ports=ports)
    found = follow(answer, tcp_segment(ONE, 2, reverse=True, ports=ports), tcp_segment(TWO, 1, ports=ports))
    assert [item.route.from_client for item in found if item.route] == [False, True]


def test_other_ports_are_left_out_unless_asked_for() -> None:
    segment = tcp_segment(ONE, 1, ports=(40000, 11801))
    assert follow(segment) == []
    assert whole(*follow(segment, options=SourceOptions(session_ports=frozenset({11801})))) == [ONE]


def test_early_segments_are_held_up_to_a_limit_and_then_the_missing_ones_are_lost() -> None:
    options = SourceOptions(limits=StreamLimits(early_bytes=100))
    data = ONE + TWO * 4
    found = follow(*stream((0, ONE), *((at, data[at : at + 40]) for at in (80, 120, 160)), (40, TWO)), options=options)
    assert [item.data for item in found] == [ONE, TWO, TWO, TWO]


def test_connections_beyond_the_limit_are_forgotten_and_told() -> None:
    options = SourceOptions(limits=StreamLimits(connections=2))
    segments = [tcp_segment(ONE[:20], 1, ports=(port, 1801)) for port in (1, 2, 3)]
    found = follow(*segments, options=options)
    assert [item.route.source for item in found if item.route] == ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"]
    assert [item.damage for item in found] == ["20 of its 40 bytes are there, then the stream ends"] * 3


def test_memory_of_all_streams_together_is_bounded() -> None:
    options = SourceOptions(limits=StreamLimits(all_bytes=3000))
    big = packet(2000)
    segments = [tcp_segment(big[:1900], 1, ports=(port, 1801)) for port in range(1, 6)]
    found = follow(*segments, options=options)
    assert [item.size for item in found] == [1900] * 5


def test_a_stream_of_something_else_is_one_stretch_without_packets() -> None:
    found = follow(*stream(*((at, b"GET / HTTP/1.1\r\n" * 50) for at in range(0, 80000, 800))))
    assert len(found) == 1
    assert found[0].size == 80000
    assert len(found[0].data) == 256
    assert len(found[0].origin.frames) <= 64
