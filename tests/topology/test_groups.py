"""Entries of a declaration for groups: applied to a directory, and evaluated by a node that belongs to it."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import yaml

from mqenterprise.directory.admission import admit
from mqenterprise.directory.ldap_names import name_of
from qmnode import Access, MessageQueuingError
from qmnode.administration.operation_rights import GuardedQueueManager
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.security_descriptor import Sid
from tests.directory.test_membership import installed, node_settings, running
from tests.lab.addresses import free_alias
from tests.lab.groups import Groups
from tests.lab.waiting import holds

__all__ = ["installed"]

pytestmark = [pytest.mark.servers, pytest.mark.usefixtures("installed")]


PEEK_AND_SEE = ["peek", "receive", "get_properties"]


async def may(manager, principal, queue, access):
    try:
        await (await GuardedQueueManager(manager, principal).open_queue(f"DIRECT=OS:{queue}", access)).close()
    except MessageQueuingError as error:
        assert error.code == ErrorCode.MQ_ERROR_ACCESS_DENIED, error
        return False
    return True


class Declared:
    """A machine with a queue that allows a group and one that denies it, applied to the directory; its node."""

    def __init__(self, bench, computer, group, folder):
        self.bench, self.computer, self.folder = bench, computer, folder
        lists = {
            "allowed": [{"to": group, "allow": PEEK_AND_SEE}],
            "denied": [{"to": "Everyone", "allow": PEEK_AND_SEE}, {"to": group, "deny": ["peek", "receive"]}],
        }
        self.checked = bench.declare(
            {
                "enterprise": {"name": "E"},
                "sites": [{"name": "A"}],
                "machines": [{"name": computer, "sites": ["A"]}],
                "queues": [{"machine": computer, "name": name, "access": entries} for name, entries in lists.items()],
            }
        )
        bench.apply(self.checked)
        admit(bench.directory, computer, folder / "given")

    @asynccontextmanager
    async def node(self, **directory):
        """The node, which asks for groups each time unless ``directory`` says for how long they are good."""
        settings = node_settings(self.folder, self.computer, self.folder / "given/directory.yaml")
        known = settings.directory.settings | {"fresh_for": 0.0} | directory
        security = settings.security.model_copy(update={"principal_lifetime": 0.0})
        joined = settings.directory.model_copy(update={"settings": known})
        settings = settings.model_copy(update={"directory": joined, "security": security})
        async with running(settings) as service:
            self.manager = service.manager
            await holds(self._has_queues, 60, "the node has its queues")
            yield

    async def _has_queues(self):
        return {"allowed", "denied"} <= {each.pathname.rpartition("\\")[2] for each in await self.manager.queues()}

    def loses_its_directory(self):
        """From its next start on."""
        file = self.folder / "given/directory.yaml"
        away = {"servers": [f"ldaps://{free_alias([636])}:636"], "connect_timeout": 1.0}
        file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | away))

    async def opens(self, sid):
        """Which queues this user opens, for what."""
        principal = await self.manager.principals.of_token("user", str(Sid.parse(sid)))
        return {
            (queue, access)
            for queue in ("allowed", "denied")
            for access in (Access.PEEK, Access.RECEIVE)
            if await may(self.manager, principal, f"{self.computer}\\{queue}", access)
        }


ALLOWED, DENIED = ({(queue, access) for access in (Access.PEEK, Access.RECEIVE)} for queue in ("allowed", "denied"))


async def test_entries_of_a_declaration_for_groups_count_at_the_node(bench, fresh_name, tmp_path):
    groups = Groups(bench.directory, fresh_name)
    (member, member_sid), (_, stranger_sid) = groups.user(), groups.user()
    outer, _ = groups.group(groups.group(member)[0])
    declared = Declared(bench, fresh_name("NODE"), name_of(outer), tmp_path)

    async with declared.node():
        assert await declared.opens(member_sid) == ALLOWED
        assert await declared.opens(stranger_sid) == DENIED

    assert bench.plan(declared.checked).steps == ()


async def test_groups_five_deep_and_in_a_circle_count_until_their_member_is_removed(bench, fresh_name, tmp_path):
    groups = Groups(bench.directory, fresh_name)
    member, sid = groups.user()
    chain = [groups.group(member)[0]]
    for _ in range(4):
        chain.append(groups.group(chain[-1])[0])
    groups.change(chain[0], member, chain[-1])
    declared = Declared(bench, fresh_name("NODE"), name_of(chain[-1]), tmp_path)

    async with declared.node(fresh_for=1.0):
        assert await declared.opens(sid) == ALLOWED

        groups.change(chain[0], chain[-1])

        async def is_out():
            return await declared.opens(sid) == DENIED

        await holds(is_out, 60, "the member is out of the group")


async def test_groups_count_with_the_directory_away_for_as_long_as_keys(bench, fresh_name, tmp_path):
    groups = Groups(bench.directory, fresh_name)
    (member, member_sid), (_, stranger_sid), (_, unasked_sid) = groups.user(), groups.user(), groups.user()
    group, _ = groups.group(member)
    declared = Declared(bench, fresh_name("NODE"), name_of(group), tmp_path)
    async with declared.node():
        assert await declared.opens(member_sid) == ALLOWED
        assert await declared.opens(stranger_sid) == DENIED
    declared.loses_its_directory()

    async with declared.node():
        assert await declared.opens(member_sid) == ALLOWED
        assert await declared.opens(stranger_sid) == DENIED
        assert await declared.opens(unasked_sid) == set(), "it may be in the group that is denied"

    async with declared.node(keys_for=0.0):
        for sid in (member_sid, stranger_sid, unasked_sid):
            assert await declared.opens(sid) == set()
