"""Permissions as Active Directory keeps them, read as permissions of Message Queuing."""

import pytest

from qmnode.security.access_check import Token, access_check
from qmnode.security.directory_rights import CONNECTED_NETWORK_RIGHTS, QUEUE_MANAGER_RIGHTS, QUEUE_RIGHTS
from qmnode.structures.access_masks import ConnectedNetworkAccess, QueueAccess, QueueManagerAccess
from qmnode.structures.security_descriptor import AceType, SecurityDescriptor
from qmnode.structures.sid import Sid
from tests.lab.sddl import format_sddl, parse_sddl

RECEIVE = "06bd3200-df3e-11d1-9c86-006008764d0e"
PEEK = "06bd3201-df3e-11d1-9c86-006008764d0e"
SEND = "06bd3202-df3e-11d1-9c86-006008764d0e"
RECEIVE_JOURNAL = "06bd3203-df3e-11d1-9c86-006008764d0e"
RECEIVE_DEAD_LETTER = "4b6e08c0-df3c-11d1-9c86-006008764d0e"
PEEK_COMPUTER_JOURNAL = "4b6e08c3-df3c-11d1-9c86-006008764d0e"
OPEN_CONNECTOR = "b4e60130-df3f-11d1-9c86-006008764d0e"
SOME_PROPERTY = "9a0dc320-c100-11d1-bbc5-0080c76670c0"

Q, QM = QueueAccess, QueueManagerAccess


def masks(rights, text):
    return [(ace.ace_type, ace.entry.mask) for ace in rights.read(parse_sddl(text)).dacl.aces]


@pytest.mark.parametrize(
    ("ace", "mask"),
    [
        (f"OA;;CR;{SEND};", Q.MQSEC_WRITE_MESSAGE),
        (f"OA;;CR;{RECEIVE};", Q.MQSEC_RECEIVE_MESSAGE),
        (f"OA;;CR;{PEEK};", Q.MQSEC_PEEK_MESSAGE),
        (f"OA;;CR;{RECEIVE_JOURNAL};", Q.MQSEC_RECEIVE_JOURNAL_MESSAGE),
        ("A;;CR;;", Q.MQSEC_RECEIVE_MESSAGE | Q.MQSEC_WRITE_MESSAGE | Q.MQSEC_RECEIVE_JOURNAL_MESSAGE),
        ("A;;RP;;", Q.MQSEC_GET_QUEUE_PROPERTIES),
        ("A;;WP;;", Q.MQSEC_SET_QUEUE_PROPERTIES),
        ("A;;SDRCWDWO;;", 0x000F0000),
        ("A;;GA;;", Q.MQSEC_QUEUE_GENERIC_ALL),
        ("A;;RPWPCRCCDCLCLORCWOWDSDDTSW;;", Q.MQSEC_QUEUE_GENERIC_ALL),
        ("A;;GR;;", Q.MQSEC_GET_QUEUE_PROPERTIES | Q.MQSEC_GET_QUEUE_PERMISSIONS),
    ],
)
def test_what_an_entry_of_a_queue_allows(ace, mask):
    assert masks(QUEUE_RIGHTS, f"D:({ace};WD)") == [(AceType.ACCESS_ALLOWED, mask)]


@pytest.mark.parametrize(
    "ace", [f"OA;;CR;{RECEIVE_DEAD_LETTER};", f"OA;;RP;{SOME_PROPERTY};", f"OA;;RP;{SEND};", "A;;CCDCLCSW;;"]
)
def test_what_means_nothing_to_a_queue_is_left_out(ace):
    assert masks(QUEUE_RIGHTS, f"D:({ace};WD)") == []


@pytest.mark.parametrize(
    ("ace", "mask"),
    [
        (f"OD;;CR;{SEND};", Q.MQSEC_WRITE_MESSAGE),
        (f"OD;;CR;{RECEIVE};", Q.MQSEC_DELETE_MESSAGE),
        ("D;;WPSD;;", Q.MQSEC_SET_QUEUE_PROPERTIES | Q.MQSEC_DELETE_QUEUE),
    ],
)
def test_what_an_entry_of_a_queue_denies(ace, mask):
    assert masks(QUEUE_RIGHTS, f"D:({ace};WD)") == [(AceType.ACCESS_DENIED, mask)]


def test_who_may_not_receive_may_still_peek():
    descriptor = QUEUE_RIGHTS.read(parse_sddl(f"D:(OD;;CR;{RECEIVE};;WD)(A;;CR;;;WD)"))
    token = Token.of(Sid.from_text("S-1-5-21-1-2-3-1001"))

    assert not access_check(descriptor, token, Q.MQSEC_RECEIVE_MESSAGE).allowed
    assert access_check(descriptor, token, Q.MQSEC_PEEK_MESSAGE).allowed


@pytest.mark.parametrize(
    ("ace", "mask"),
    [
        (f"OA;;CR;{RECEIVE_DEAD_LETTER};", QM.MQSEC_RECEIVE_DEADLETTER_MESSAGE),
        (f"OA;;CR;{PEEK_COMPUTER_JOURNAL};", QM.MQSEC_PEEK_JOURNAL_QUEUE_MESSAGE),
        ("A;;CC;;", QM.MQSEC_CREATE_QUEUE),
        ("A;;RPRC;;", QM.MQSEC_MACHINE_WORLD_RIGHTS),
        ("A;;RPWPCRCCDCLCLORCWOWDSDDTSW;;", QM.MQSEC_MACHINE_GENERIC_ALL),
    ],
)
def test_what_an_entry_of_a_queue_manager_allows(ace, mask):
    assert masks(QUEUE_MANAGER_RIGHTS, f"D:({ace};WD)") == [(AceType.ACCESS_ALLOWED, mask)]


def test_a_connector_is_opened_by_its_right():
    expected = [(AceType.ACCESS_ALLOWED, ConnectedNetworkAccess.MQSEC_CN_OPEN_CONNECTOR)]

    assert masks(CONNECTED_NETWORK_RIGHTS, f"D:(OA;;CR;{OPEN_CONNECTOR};;WD)") == expected


def test_owner_order_and_inheritance_are_kept():
    read = QUEUE_RIGHTS.read(parse_sddl(f"O:SYG:BAD:PAI(D;CI;SD;;;BU)(OA;IO;CR;{SEND};;WD)S:(AU;SA;GA;;;WD)"))

    assert format_sddl(read) == "O:SYG:BAD:PAI(D;CI;SD;;;BU)(A;IO;LC;;;WD)S:NO_ACCESS_CONTROL"


def test_no_list_stays_no_list():
    assert QUEUE_RIGHTS.read(SecurityDescriptor()).dacl is None
