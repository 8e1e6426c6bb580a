"""Who may do what with a queue, as administrators see and change it, against the access check."""

import pytest

from qmnode.administration.access_control import RIGHTS, Change, changed, describe, mask_of, names_of, trustee
from qmnode.errors import MessageQueuingError
from qmnode.security.access_check import Token, access_check
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.security_descriptor import EVERYONE, QueueAccess, SecurityDescriptor, Sid
from tests.lab.cases import cases
from tests.lab.sddl import parse_sddl

ALICE = Sid.from_text("S-1-5-21-1-2-3-1104")
BOB = Sid.from_text("S-1-5-21-1-2-3-1105")
SEND = int(QueueAccess.MQSEC_WRITE_MESSAGE)
RECEIVE = int(QueueAccess.MQSEC_RECEIVE_MESSAGE)


def may(security: bytes, who: Sid, rights: int) -> bool:
    return access_check(SecurityDescriptor.parse(security), Token.of(who), rights).allowed


def test_allowing_one_does_not_shut_out_the_others() -> None:
    security = changed(b"", Change.ALLOW, ALICE, SEND)
    assert may(security, ALICE, SEND)
    assert may(security, BOB, RECEIVE)


def test_a_denial_counts_although_everybody_is_allowed() -> None:
    security = changed(b"", Change.DENY, ALICE, SEND)
    assert not may(security, ALICE, SEND)
    assert may(security, ALICE, RECEIVE)
    assert may(security, BOB, SEND)


def test_allowing_takes_a_denial_back() -> None:
    security = changed(changed(b"", Change.DENY, ALICE, SEND | RECEIVE), Change.ALLOW, ALICE, SEND)
    assert may(security, ALICE, SEND)
    assert not may(security, ALICE, RECEIVE)


def test_removing_the_rights_of_everybody_leaves_those_of_some() -> None:
    security = changed(b"", Change.ALLOW, ALICE, SEND)
    security = changed(security, Change.REMOVE, EVERYONE, mask_of(["full-control"]))
    assert may(security, ALICE, SEND)
    assert not may(security, BOB, SEND)


def test_rights_of_one_user_are_one_entry() -> None:
    security = changed(changed(b"", Change.ALLOW, ALICE, SEND), Change.ALLOW, ALICE, RECEIVE)
    rules = [rule for rule in describe(security).rules if rule.trustee == str(ALICE)]
    assert [(rule.allows, rule.mask) for rule in rules] == [(True, SEND | RECEIVE)]


def test_what_is_not_about_him_stays() -> None:
    before = parse_sddl("O:BAG:SYD:(D;;0x4;;;AN)(OA;;0x1;ab721a54-1e2f-11d0-9819-00aa0040529b;;WD)(A;ID;0x2;;;BU)")
    after = SecurityDescriptor.parse(changed(before.write(), Change.ALLOW, ALICE, SEND))
    assert before.dacl is not None
    assert after.dacl is not None
    assert (after.owner, after.group) == (before.owner, before.group)
    assert set(map(repr, before.dacl.aces)) <= set(map(repr, after.dacl.aces))
    # Denials, then what is allowed, then what was inherited.
    assert [ace.ace_flags for ace in after.dacl.aces][-1] == 0x10
    assert describe(after.write()).other_entries == 1


def test_no_list_is_said_to_be_none() -> None:
    assert describe(b"").unrestricted
    assert not describe(parse_sddl("D:").write()).unrestricted


@cases("name", RIGHTS)
def test_a_right_reads_as_it_was_named(name: str) -> None:
    assert names_of(mask_of([name])) == (name,)


def test_bits_without_a_name_are_shown() -> None:
    assert names_of(SEND | 0x100) == ("send-message", "0x00000100")


def test_who_and_what_cannot_be_understood() -> None:
    with pytest.raises(MessageQueuingError) as caught:
        trustee("somebody")
    assert caught.value.code == ErrorCode.MQ_ERROR_ILLEGAL_USER
    with pytest.raises(MessageQueuingError, match="no right"):
        mask_of(["everything"])
    with pytest.raises(MessageQueuingError) as caught:
        describe(b"nonsense")
    assert caught.value.code == ErrorCode.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR
