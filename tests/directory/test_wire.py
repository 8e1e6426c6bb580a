"""LDAP messages as bytes: equal to what another encoder writes, and safe against what a server may send."""

from __future__ import annotations

import socket
from contextlib import suppress
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ldap3.operation.add import add_operation
from ldap3.operation.delete import delete_operation
from ldap3.operation.modify import modify_operation
from ldap3.operation.search import search_operation
from ldap3.protocol.rfc4511 import LDAPMessage, MessageID, ProtocolOp
from pyasn1.codec.ber import decoder
from pyasn1.codec.ber.encoder import encode

from mqenterprise.directory.entries import Change, ChangeKind
from mqenterprise.directory.errors import ConstraintViolated
from mqenterprise.directory.ldap_messages import (
    LARGEST_MESSAGE,
    OCTETS,
    SEQUENCE,
    Message,
    Wire,
    WireError,
    add_request,
    delete_request,
    element,
    elements,
    entry,
    header,
    integer,
    message,
    modify_request,
    octets,
    search_request,
)

DN = "CN=Grüße\\, und + mehr,CN=msmq,DC=lab"


def by_ldap3(kind: str, operation: object) -> bytes:
    """The same message through pyasn1, canonicalised by decoding it again."""
    whole = LDAPMessage()
    whole["messageID"] = MessageID(7)
    whole["protocolOp"] = ProtocolOp().setComponentByName(kind, operation)
    return bytes(encode(whole))


def test_an_add_request_is_what_ldap3_writes() -> None:
    attributes = {
        "objectClass": [b"top", b"mSMQQueue"],
        "objectGUID": [bytes(range(16))],
        "mSMQLabelEx": ["ä".encode()],
    }
    expected = by_ldap3("addRequest", add_operation(DN, attributes, False))

    assert message(7, add_request(DN, attributes)) == expected


def test_a_modify_request_is_what_ldap3_writes() -> None:
    changes = [
        Change(ChangeKind.DELETE, "adminDescription", (b"old",)),
        Change(ChangeKind.ADD, "description", (b"new",)),
        Change(ChangeKind.REPLACE, "mSMQLabelEx", ()),
    ]
    asked = {change.attribute: [(change.kind.value, list(change.values))] for change in changes}
    expected = by_ldap3("modifyRequest", modify_operation(DN, asked, False))

    assert message(7, modify_request(DN, changes)) == expected


def test_a_delete_request_is_what_ldap3_writes() -> None:
    assert message(7, delete_request(DN)) == by_ldap3("delRequest", delete_operation(DN))


@pytest.mark.parametrize(
    "filter", ["(objectClass=*)", "(&(a=b)(!(c>=3))(d=*x*y))", "(objectGUID=\\00\\ff\\2a)", "(cn=Grüße)"]
)
def test_a_search_request_is_what_ldap3_writes(filter: str) -> None:
    operation = search_operation(DN, filter, "SUBTREE", "NEVER", ["a", "b"], 0, 30, False, False, False)
    expected = by_ldap3("searchRequest", operation)

    assert message(7, search_request(DN, "SUBTREE", filter, ["a", "b"], 30)) == expected


def test_what_is_no_filter_is_refused() -> None:
    with pytest.raises(ConstraintViolated, match="no search filter"):
        search_request(DN, "BASE", "(a=", [], 1)


@given(st.integers(min_value=-(2**70), max_value=2**70))
def test_integers_are_read_as_they_were_written(value: int) -> None:
    decoded, rest = decoder.decode(integer(value))

    assert int(decoded) == value
    assert rest == b""


@given(st.binary(max_size=70_000))
def test_elements_are_read_as_they_were_written(body: bytes) -> None:
    data = element(OCTETS, body)

    tag, begin, end = header(data, 0)

    assert (tag, data[begin:end], end) == (OCTETS, body, len(data))


@given(st.binary(max_size=300))
def test_any_bytes_are_an_entry_or_an_error(data: bytes) -> None:
    for read in (
        lambda: entry(data, 0, len(data)),
        lambda: elements(data, 0, len(data)),
        lambda: Wire._parsed(data),
        lambda: Message(1, 0x65, 0, len(data), data, ()).result(),
    ):
        with suppress(WireError):
            read()


class Talk:
    """A wire, and the server's end of it."""

    def __init__(self) -> None:
        ours, self.server = socket.socketpair()
        numbers = iter(range(1, 100))
        connection = SimpleNamespace(socket=ours, server=SimpleNamespace(next_message_id=lambda: next(numbers)))
        self.wire = Wire(connection)

    def close(self) -> None:
        self.server.close()
        self.wire._socket.close()


@pytest.fixture
def talk() -> Talk:
    opened = Talk()
    yield opened
    opened.close()


def result(identifier: int, tag: int = 0x69, code: int = 0) -> bytes:
    body = element(tag, integer(code, 0x0A) + octets(b"") + octets(b"said"))
    return element(SEQUENCE, integer(identifier) + body)


def test_an_answer_in_small_pieces(talk: Talk) -> None:
    identifier = talk.wire.send(delete_request(DN))
    answer = result(identifier, code=32)
    for byte in answer:
        talk.server.send(bytes([byte]))

    found = talk.wire.receive(identifier, 5).result()

    assert (found.code, found.message) == (32, "said")


def test_pieces_that_never_make_a_whole_end_in_time(talk: Talk) -> None:
    identifier = talk.wire.send(delete_request(DN))
    talk.server.send(b"\x30\x84\x00\x00\x10\x00" + bytes(10))

    with pytest.raises(TimeoutError):
        talk.wire.receive(identifier, 0.05)


@pytest.mark.parametrize(
    ("bytes_", "sentence"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak LDAP"),
        (b"\x30\x84" + (LARGEST_MESSAGE + 1).to_bytes(4, "big"), "announces a message"),
        (result(99), "was not asked"),
        (result(0, tag=0x78), "closes the connection"),
    ],
)
def test_a_server_that_talks_nonsense_is_not_believed(talk: Talk, bytes_: bytes, sentence: str) -> None:
    identifier = talk.wire.send(delete_request(DN))
    talk.server.send(bytes_)

    with pytest.raises(WireError, match=sentence):
        talk.wire.receive(identifier, 1)


def test_a_server_that_hangs_up(talk: Talk) -> None:
    identifier = talk.wire.send(delete_request(DN))
    talk.server.shutdown(socket.SHUT_WR)

    with pytest.raises(WireError, match="closed the connection"):
        talk.wire.receive(identifier, 1)
