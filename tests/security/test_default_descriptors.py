"""Who may do what with a new queue or queue manager: MS-MQDMPR 3.1.7.1.3.1, MS-MQDSSM 3.1.6.1.1.8."""

import pytest

from qmnode.security.access_check import (
    QUEUE_MANAGER_MAPPING,
    Token,
    access_check,
    default_queue_manager_security,
    default_queue_security,
)
from qmnode.structures.security_descriptor import (
    ANONYMOUS,
    EVERYONE,
    LOCAL_SYSTEM,
    AccessMask,
    QueueAccess,
    QueueManagerAccess,
    SecurityDescriptor,
    Sid,
)
from tests.lab.sddl import parse_sddl

DOMAIN = Sid.from_text("S-1-5-21-1-2-3")
USER, MACHINE, GUEST, STRANGER = (DOMAIN.child(number) for number in (1001, 1103, 501, 1002))
SEE = QueueAccess.MQSEC_GET_QUEUE_PROPERTIES | QueueAccess.MQSEC_GET_QUEUE_PERMISSIONS
ALL = QueueAccess.MQSEC_QUEUE_GENERIC_ALL
SEND = QueueAccess.MQSEC_WRITE_MESSAGE


def entries(descriptor):
    return [(ace.ace_type, ace.entry.sid, ace.entry.mask) for ace in descriptor.dacl.aces]


def test_a_queue_of_a_domain_user_is_the_users_and_visible_to_all():
    descriptor = default_queue_security(USER, is_domain_user=True, machine=MACHINE)

    assert descriptor.owner == USER
    assert entries(descriptor) == [(0, EVERYONE, SEE), (0, MACHINE, SEE), (0, USER, ALL)]


def test_only_the_owner_may_use_it():
    descriptor = default_queue_security(USER, is_domain_user=True)

    assert access_check(descriptor, Token.of(USER), ALL).allowed
    assert access_check(descriptor, Token.of(STRANGER), SEE).allowed
    assert not access_check(descriptor, Token.of(STRANGER), SEND).allowed


@pytest.mark.parametrize(("user", "is_domain_user", "owner"), [(USER, False, ANONYMOUS), (GUEST, True, GUEST)])
def test_a_queue_of_nobody_in_particular_is_everybodys(user, is_domain_user, owner):
    descriptor = default_queue_security(user, is_domain_user=is_domain_user)

    assert descriptor.owner == owner
    assert entries(descriptor) == [(0, EVERYONE, ALL)]


def test_a_queue_that_takes_messages_over_http_lets_anybody_send():
    descriptor = default_queue_security(USER, is_domain_user=True, accepts_srmp=True)

    assert entries(descriptor) == [(0, EVERYONE, SEE | SEND), (0, ANONYMOUS, SEND), (0, USER, ALL)]
    assert access_check(descriptor, Token.of(ANONYMOUS), SEND).allowed


def test_what_the_creator_supplied_is_kept():
    supplied = parse_sddl("O:SYG:BAD:(A;;0x4;;;AN)S:(AU;FA;0x4;;;WD)")
    descriptor = default_queue_security(USER, is_domain_user=True, supplied=supplied)

    assert descriptor == supplied


def test_a_supplied_owner_alone_gets_the_default_list():
    descriptor = default_queue_security(USER, is_domain_user=True, supplied=SecurityDescriptor(owner=LOCAL_SYSTEM))

    assert entries(descriptor) == [(0, EVERYONE, SEE), (0, LOCAL_SYSTEM, ALL)]


def test_the_descriptor_can_be_written():
    descriptor = default_queue_security(USER, is_domain_user=True, machine=MACHINE)

    assert SecurityDescriptor.parse(descriptor.write()) == descriptor


def test_a_queue_manager_is_run_by_its_computer_and_seen_by_all():
    descriptor = default_queue_manager_security(USER, machine=MACHINE)
    everything = QueueManagerAccess.MQSEC_MACHINE_GENERIC_ALL

    def granted(sid):
        return access_check(descriptor, Token.of(sid), AccessMask.MAXIMUM_ALLOWED, QUEUE_MANAGER_MAPPING).granted

    assert descriptor.owner == MACHINE
    assert granted(MACHINE) == granted(USER) == everything
    assert granted(STRANGER) == QueueManagerAccess.MQSEC_MACHINE_WORLD_RIGHTS


def test_everybody_may_create_queues_on_a_foreign_one():
    descriptor = default_queue_manager_security(USER, is_foreign=True)

    assert entries(descriptor)[0] == (0, EVERYONE, QueueManagerAccess.MQSEC_MACHINE_GENERIC_WRITE)
