"""The access check algorithm, MS-DTYP 2.5.3.2, on queues."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmnode.security.access_check import (
    QUEUE_MANAGER_MAPPING,
    QUEUE_MAPPING,
    AccessDecision,
    Privilege,
    Token,
    access_check,
)
from qmnode.structures.guid import Guid, guid_from_text
from qmnode.structures.security_descriptor import (
    ANONYMOUS,
    AUTHENTICATED_USERS,
    EVERYONE,
    OWNER_RIGHTS,
    PRINCIPAL_SELF,
    AccessEntry,
    AccessMask,
    Ace,
    AceFlags,
    AceType,
    ObjectEntry,
    QueueAccess,
    QueueManagerAccess,
    SecurityDescriptor,
    Sid,
    allow,
    deny,
)
from tests.lab.sddl import parse_sddl

SEND, PEEK, DELETE = QueueAccess.MQSEC_WRITE_MESSAGE, QueueAccess.MQSEC_PEEK_MESSAGE, QueueAccess.MQSEC_DELETE_MESSAGE
RECEIVE, ALL = QueueAccess.MQSEC_RECEIVE_MESSAGE, QueueAccess.MQSEC_QUEUE_GENERIC_ALL
DOMAIN = Sid.from_text("S-1-5-21-1-2-3")
ALICE, BOB, STAFF = (DOMAIN.child(number) for number in (1001, 1002, 2001))
alice = Token.of(ALICE, [STAFF])


def queue(*aces, owner=None):
    return SecurityDescriptor(owner=owner).with_dacl(*aces)


def granted(descriptor, token, requested, **options):
    decision = access_check(descriptor, token, requested, **options)
    assert decision.granted == (decision.granted if decision.allowed else 0)
    return decision.allowed


# --- who is meant -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("sid", "expected"), [(ALICE, True), (STAFF, True), (EVERYONE, True), (BOB, False)])
def test_an_entry_is_about_an_account_and_its_groups(sid, expected):
    assert granted(queue(allow(sid, SEND)), alice, SEND) is expected


def test_an_anonymous_sender_is_in_everyone_and_not_in_authenticated_users():
    assert Token.of(ANONYMOUS).sids == {ANONYMOUS, EVERYONE}
    assert Token.of(EVERYONE).sids == {EVERYONE}
    assert Token.of(ALICE).sids == {ALICE, EVERYONE, AUTHENTICATED_USERS}


def test_self_is_who_the_caller_says():
    descriptor = queue(allow(PRINCIPAL_SELF, SEND))

    assert granted(descriptor, alice, SEND, principal_self=ALICE)
    assert not granted(descriptor, alice, SEND, principal_self=BOB)
    assert not granted(descriptor, alice, SEND)


# --- no list, an empty list -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("text", ["O:SY", "D:NO_ACCESS_CONTROL"])
def test_without_a_list_everybody_may_do_everything(text):
    assert access_check(parse_sddl(text), Token.of(ANONYMOUS), ALL) == AccessDecision(True, ALL)


def test_an_empty_list_lets_nobody_in_but_the_owner_to_the_list():
    descriptor = queue(owner=ALICE)

    assert not granted(descriptor, alice, SEND)
    assert granted(descriptor, alice, AccessMask.READ_CONTROL | AccessMask.WRITE_DACL)
    assert not granted(descriptor, Token.of(BOB), AccessMask.READ_CONTROL)


# --- order ------------------------------------------------------------------------------------------------------------
def test_a_denial_before_the_permission_denies_all_that_was_asked():
    decision = access_check(queue(deny(STAFF, SEND), allow(ALICE, ALL)), alice, SEND | PEEK)

    assert decision == AccessDecision(False, 0, SEND)


def test_a_denial_after_the_permission_comes_too_late():
    assert granted(queue(allow(ALICE, SEND), deny(EVERYONE, SEND)), alice, SEND)


def test_permissions_add_up():
    descriptor = queue(allow(ALICE, DELETE), allow(STAFF, PEEK))

    assert granted(descriptor, alice, RECEIVE)
    assert access_check(descriptor, Token.of(ALICE), RECEIVE) == AccessDecision(False, 0, PEEK)


def test_a_denial_of_something_else_does_not_matter():
    assert granted(queue(deny(ALICE, PEEK), allow(ALICE, ALL)), alice, SEND)


def test_an_entry_that_is_only_inherited_does_not_count():
    inherit_only = 1 << AceFlags.INHERIT_ONLY_ACE.shift

    assert not granted(queue(allow(ALICE, SEND, flags=inherit_only)), alice, SEND)
    assert granted(queue(deny(ALICE, SEND, flags=inherit_only), allow(ALICE, SEND)), alice, SEND)


# --- generic rights ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("generic", "mapping", "specific"),
    [
        (AccessMask.GENERIC_READ, QUEUE_MAPPING, 0x0002002B),
        (AccessMask.GENERIC_WRITE, QUEUE_MAPPING, 0x00020024),
        (AccessMask.GENERIC_ALL, QUEUE_MAPPING, 0x000F003F),
        (AccessMask.GENERIC_READ, QUEUE_MANAGER_MAPPING, QueueManagerAccess.MQSEC_MACHINE_GENERIC_READ),
        (AccessMask.GENERIC_ALL, QUEUE_MANAGER_MAPPING, 0x000F00F7),
    ],
)
def test_a_request_for_generic_rights_is_one_for_those_of_the_object(generic, mapping, specific):
    assert access_check(queue(allow(ALICE, specific)), alice, generic, mapping) == AccessDecision(True, specific)
    assert not access_check(queue(allow(ALICE, specific & ~0x20)), alice, generic, mapping).allowed


def test_generic_rights_in_entries_give_nothing():
    descriptor = parse_sddl("O:SYD:(A;;GA;;;WD)")

    assert not granted(descriptor, alice, SEND)


# --- owner, privileges ------------------------------------------------------------------------------------------------
def test_a_denial_does_not_take_the_owners_rights():
    assert granted(queue(deny(EVERYONE, ALL), owner=ALICE), alice, AccessMask.READ_CONTROL)


def test_an_entry_for_owners_takes_the_place_of_the_owners_rights():
    descriptor = queue(allow(OWNER_RIGHTS, SEND), owner=ALICE)

    assert granted(descriptor, alice, SEND)
    assert not granted(descriptor, alice, AccessMask.WRITE_DACL)
    assert not granted(descriptor, Token.of(BOB), SEND)


def test_who_may_take_ownership_needs_no_entry():
    taker = Token.of(BOB, privileges=[Privilege.TAKE_OWNERSHIP])

    assert granted(queue(), taker, AccessMask.WRITE_OWNER)
    assert not granted(queue(), Token.of(BOB), AccessMask.WRITE_OWNER)


@pytest.mark.parametrize("descriptor", [SecurityDescriptor(), queue(allow(ALICE, 0xFFFFFFFF))])
def test_only_the_privilege_gives_access_to_auditing(descriptor):
    auditor = Token.of(ALICE, privileges=[Privilege.SECURITY])

    assert granted(descriptor, auditor, AccessMask.ACCESS_SYSTEM_SECURITY)
    assert not granted(descriptor, alice, AccessMask.ACCESS_SYSTEM_SECURITY)


# --- the most there is ------------------------------------------------------------------------------------------------
def test_the_maximum_is_what_is_allowed_and_not_denied():
    descriptor = queue(allow(EVERYONE, SEND), allow(STAFF, RECEIVE), deny(ALICE, DELETE), allow(BOB, ALL))

    assert access_check(descriptor, alice, AccessMask.MAXIMUM_ALLOWED) == AccessDecision(True, SEND | PEEK)


def test_the_maximum_of_the_owner_has_the_owners_rights():
    descriptor = queue(allow(EVERYONE, SEND), owner=ALICE)
    expected = SEND | AccessMask.READ_CONTROL | AccessMask.WRITE_DACL

    assert access_check(descriptor, alice, AccessMask.MAXIMUM_ALLOWED) == AccessDecision(True, expected)


def test_the_maximum_of_nothing_is_a_denial():
    assert not granted(queue(allow(BOB, SEND)), alice, AccessMask.MAXIMUM_ALLOWED)


def test_what_is_asked_beside_the_maximum_must_be_in_it():
    descriptor = queue(allow(ALICE, SEND))

    assert granted(descriptor, alice, AccessMask.MAXIMUM_ALLOWED | SEND)
    assert access_check(descriptor, alice, AccessMask.MAXIMUM_ALLOWED | PEEK) == AccessDecision(False, 0, PEEK)


def test_without_a_list_the_maximum_is_everything():
    assert access_check(SecurityDescriptor(), alice, AccessMask.MAXIMUM_ALLOWED) == AccessDecision(True, ALL)


# --- object entries, conditions ---------------------------------------------------------------------------------------
RIGHT = guid_from_text("06bd3202-df3e-11d1-9c86-006008764d0e")


def object_ace(ace_type, object_type):
    return Ace(ace_type=ace_type, entry=ObjectEntry(mask=SEND, sid=ALICE, object_type=object_type))


@pytest.mark.parametrize(
    ("entry_type", "asked_type", "counts"),
    [
        (None, None, True),
        (None, RIGHT, True),
        (RIGHT, RIGHT, True),
        (RIGHT, None, False),
        (RIGHT, Guid(bytes(16)), False),
    ],
)
def test_an_object_entry_counts_for_its_type(entry_type, asked_type, counts):
    allowing = queue(object_ace(AceType.ACCESS_ALLOWED_OBJECT, entry_type))
    denying = queue(object_ace(AceType.ACCESS_DENIED_OBJECT, entry_type), allow(ALICE, SEND))

    assert granted(allowing, alice, SEND, object_type=asked_type) is counts
    assert granted(denying, alice, SEND, object_type=asked_type) is not counts


def test_a_condition_is_taken_for_the_worse():
    conditional = AccessEntry(mask=SEND, sid=ALICE, application_data=b"artx")
    allowing = queue(Ace(ace_type=AceType.ACCESS_ALLOWED_CALLBACK, entry=conditional))
    denying = queue(Ace(ace_type=AceType.ACCESS_DENIED_CALLBACK, entry=conditional), allow(ALICE, SEND))

    assert not granted(allowing, alice, SEND)
    assert not granted(denying, alice, SEND)


# --- against a plain reading of the rules -----------------------------------------------------------------------------
people = st.sampled_from([ALICE, BOB, STAFF, EVERYONE, ANONYMOUS])
masks = st.integers(0, 0x3F)
entries = st.lists(st.tuples(st.booleans(), people, masks), max_size=6)


@given(entries, masks)
def test_each_right_is_decided_by_the_first_entry_that_has_it(listed, requested):
    descriptor = queue(*(allow(sid, mask) if allows else deny(sid, mask) for allows, sid, mask in listed))

    def right_is_granted(right):
        return next((allows for allows, sid, mask in listed if sid in alice.sids and mask & right), False)

    expected = all(right_is_granted(1 << bit) for bit in range(6) if requested >> bit & 1)
    assert access_check(descriptor, alice, requested).allowed is expected


@given(entries)
def test_what_the_maximum_grants_is_granted_when_asked_for_in_a_canonical_list(listed):
    canonical = sorted(listed, key=lambda entry: entry[0])
    descriptor = queue(*(allow(sid, mask) if allows else deny(sid, mask) for allows, sid, mask in canonical))
    most = access_check(descriptor, alice, AccessMask.MAXIMUM_ALLOWED).granted

    assert access_check(descriptor, alice, most).allowed
    assert not any(access_check(descriptor, alice, 1 << bit).allowed for bit in range(6) if not most >> bit & 1)
