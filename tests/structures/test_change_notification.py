"""The body of a change notification, as MS-MQCN 2.2.4 and 2.2.5 have it."""

from __future__ import annotations

import re

import pytest

from qmnode.structures.change_notification import ChangeEvent, Notification, parse_notification
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import guid_from_text
from tests.lab.cases import cases

GUID = "3F2504E0-4F89-11D3-9A0C-0305E82C3301"
TEXT = (
    f"<Notification><Event>2</Event><ObjectGuid>{GUID}</ObjectGuid>"
    "<DomainController>dc1.contoso.test</DomainController></Notification>"
)
SAID = Notification(ChangeEvent.QUEUE_CHANGED, guid_from_text(GUID), "dc1.contoso.test")
RULE = re.compile(  # the ABNF of 2.2.5, without the space in an end tag that the form above it does not have
    r"<Notification><Event>[1-4]</Event>"
    r"<ObjectGuid>[0-9A-F]{8}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{12}</ObjectGuid>"
    r"<DomainController>[\x21-\x7e]{1,256}</DomainController></Notification>"
)


def body(text: str, version: int = 2, after: bytes = b"\0") -> bytes:
    return bytes((version, 1)) + text.encode("utf-16-le") + after


@pytest.mark.parametrize("event", ChangeEvent)
def test_a_notification_keeps_the_rule_and_is_followed_by_one_unused_byte(event: ChangeEvent) -> None:
    written = SAID._replace(event=event).write()

    assert written[:2] == b"\x02\x01"
    assert RULE.fullmatch(written[2:-1].decode("utf-16-le"))
    assert parse_notification(written) == SAID._replace(event=event)


def test_the_bytes_are_those_of_the_section() -> None:
    assert SAID.write() == body(TEXT)


@pytest.mark.parametrize("after", [b"", b"\0", b"\0\0", b"\0\0\0"])
def test_what_follows_a_notification_means_nothing(after: bytes) -> None:
    assert parse_notification(body(TEXT, after=after)) == SAID
    assert parse_notification(body(TEXT.replace("</ObjectGuid>", "</ObjectGuid >"), after=after)) == SAID


def test_a_notification_of_an_old_directory_service_is_told_apart() -> None:
    assert parse_notification(b"\x01\x07" + bytes(range(200))) is None


@cases(
    "junk",
    [
        b"",
        b"\x02",
        b"\x02\x01",
        b"\x03\x01" + TEXT.encode("utf-16-le"),
        body(TEXT.replace("<Event>2", "<Event>5")),
        body(TEXT.replace(GUID, GUID[:-1])),
        body(TEXT.replace(GUID, "-" * 36)),
        body(TEXT + TEXT),
        body(TEXT.replace("dc1", "d c")),
        body(TEXT.replace("dc1.contoso.test", "d" * 257)),
        body("<!DOCTYPE a [<!ENTITY b 'c'>]>" + TEXT),
        body(TEXT)[:-40],
        b"\x02\x01" + TEXT.encode(),
    ],
)
def test_anything_else_is_refused(junk: bytes) -> None:
    with pytest.raises(PacketError):
        parse_notification(junk)


@pytest.mark.parametrize("server", ["", "two words", "d" * 257, "</DomainController>", "ö"])
def test_a_server_name_that_the_rule_does_not_allow_is_not_written(server: str) -> None:
    with pytest.raises(ValueError, match="no directory server's name"):
        SAID._replace(directory_server=server).write()
