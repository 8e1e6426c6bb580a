"""The groups of a user on both real servers: nested, in circles, many, changed while they are remembered."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from mqenterprise.directory.cache import DirectoryCache
from mqenterprise.directory.errors import DirectoryUnavailable, ObjectNotFound
from mqenterprise.directory.ldap_names import child
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.port import LdapPort, PortSettings
from mqenterprise.directory.settings import DirectorySettings
from qmnode.directory.port import GroupExpansion
from qmnode.structures.security_descriptor import Sid
from tests.lab.addresses import free_alias
from tests.lab.groups import Groups

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mqenterprise.directory.private_slapd import EmbeddedDirectory
    from tests.lab.samba import DomainController

    Named = Callable[[str], str]

pytestmark = pytest.mark.servers


@pytest.fixture
def groups(directory: EnterpriseDirectory, fresh_name: Named) -> Groups:
    return Groups(directory, fresh_name)


def port_to(settings: DirectorySettings, cache: Path | None = None, **more: float) -> LdapPort:
    return LdapPort(PortSettings(directory=settings, **more), DirectoryCache(cache))  # type: ignore[arg-type]


def test_groups_of_groups_count_five_deep_and_in_circles(groups: Groups) -> None:
    user, identifier = groups.user()
    first, _ = inner = groups.group(user)
    chain = [inner]
    for _ in range(5):
        chain.append(groups.group(chain[-1][0]))
    groups.change(first, user, chain[-1][0])  # the outermost is in the innermost
    groups.group()  # of which nobody is a member
    assert groups.of(identifier) == {sid for _, sid in chain}


def test_a_user_in_no_group_and_a_user_of_another_directory(groups: Groups) -> None:
    _, identifier = groups.user()
    assert groups.of(identifier) == set()
    with pytest.raises(ObjectNotFound):
        groups.of(Sid.from_text("S-1-5-21-9-9-9-9").write())


def test_a_group_without_a_security_identifier_leads_on(slapd: EmbeddedDirectory, fresh_name: Named) -> None:
    with EnterpriseDirectory(slapd.client_settings()) as directory:
        groups = Groups(directory, fresh_name)
        user, identifier = groups.user()
        nameless, nothing = groups.group(user, security=False)
        assert nothing == b""
        _, outer = groups.group(nameless)
        assert groups.of(identifier) == {outer}


def test_two_thousand_members(slapd: EmbeddedDirectory, fresh_name: Named) -> None:
    with EnterpriseDirectory(slapd.client_settings()) as directory:
        groups = Groups(directory, fresh_name)
        user, identifier = groups.user()
        users = groups.connection.dialect.contexts.users
        _, group = groups.group(*(child(f"member{number}", users) for number in range(1999)), user)
        assert groups.of(identifier) == {group}


@pytest.mark.soak
@pytest.mark.timed
async def test_remembered_groups_of_a_large_nested_group_are_answered_in_a_millisecond(
    slapd: EmbeddedDirectory, fresh_name: Named
) -> None:
    with EnterpriseDirectory(slapd.client_settings()) as directory:
        groups = Groups(directory, fresh_name)
        user, identifier = groups.user()
        users = groups.connection.dialect.contexts.users
        chain = [groups.group(*(child(f"member{number}", users) for number in range(1999)), user)]
        for _ in range(4):
            chain.append(groups.group(chain[-1][0]))
        port = port_to(directory.connection.settings)
        try:
            asked = await timed_expansion(port, identifier, {sid for _, sid in chain}, 1)
            (*_, slowest) = remembered = await timed_expansion(port, identifier, {sid for _, sid in chain}, 1000)
        finally:
            await port.close()
    median = remembered[len(remembered) // 2]
    print(
        f"\n2,000 members, five deep: asked {asked[0] * 1000:.1f} ms, remembered {median * 1e6:.0f} us (median), "
        f"{slowest * 1000:.2f} ms (slowest)"
    )
    assert median < 0.001


async def timed_expansion(port: LdapPort, identifier: bytes, expected: set[bytes], times: int) -> list[float]:
    """How long each of so many answers took in seconds, the quickest first."""
    took = []
    for _ in range(times):
        begun = time.perf_counter()
        found = await port.expand_groups(identifier)
        took.append(time.perf_counter() - begun)
        assert expected <= set(found)
    return sorted(took)


@pytest.mark.public_report("cannatag/ldap3#228")
@pytest.mark.soak
def test_two_thousand_members_of_active_directory(domain_controller: DomainController, fresh_name: Named) -> None:
    """It takes only members that are there, and a minute for two thousand of them."""
    with EnterpriseDirectory(domain_controller.settings()) as directory:
        groups = Groups(directory, fresh_name)
        user, identifier = groups.user()
        others = [child(f"member{number}", groups.connection.dialect.contexts.users) for number in range(1999)]
        for other in others:
            groups.connection.add(other, ("top", "container"), {})
        _, group = groups.group(*others, user)
        assert groups.of(identifier) == {group}
        for other in others:
            groups.connection.delete(other)


async def test_a_node_remembers_groups_asks_again_when_told_and_when_they_are_old(groups: Groups) -> None:
    user, identifier = groups.user()
    dn, group = groups.group(user)
    port = port_to(groups.directory.connection.settings)
    try:
        assert isinstance(port, GroupExpansion)
        assert group in await port.expand_groups(identifier)
        groups.change(dn)
        begun = time.process_time()
        for _ in range(100):
            assert group in await port.expand_groups(identifier)  # remembered
        assert time.process_time() - begun < 0.1 * 100  # 1 ms each, on a machine that is a hundred times slower
        port._cache.expire(None, None)  # the watch reports a change
        assert group not in await port.expand_groups(identifier)
        groups.change(dn, user)
        old = port_to(groups.directory.connection.settings, fresh_for=0)
        try:
            assert group in await old.expand_groups(identifier)
        finally:
            await old.close()
    finally:
        await port.close()


async def test_with_the_directory_away_groups_are_believed_for_as_long_as_keys(
    groups: Groups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, identifier = groups.user()
    _, group = groups.group(user)
    cache = tmp_path / "cache.sqlite"
    port = port_to(groups.directory.connection.settings, cache)
    ask_once = port._ask_once

    async def a_change_is_heard_meanwhile(*asked: Any) -> Any:
        found = await ask_once(*asked)
        port._changes += 1
        return found

    monkeypatch.setattr(port, "_ask_once", a_change_is_heard_meanwhile)
    assert group in await port.expand_groups(identifier)
    port._cache.expire(None, None)
    await port.close()
    nowhere = groups.directory.connection.settings.model_copy(
        update={"servers": (f"ldap://{free_alias([389])}:389",), "connect_timeout": 1.0}
    )
    for keys_for, known in ((86_400.0, True), (0.0, False)):
        away = port_to(nowhere, cache, fresh_for=0, keys_for=keys_for)
        try:
            for _ in range(2):  # found away, and known to be away
                if known:
                    assert group in await away.expand_groups(identifier)
                else:
                    with pytest.raises(DirectoryUnavailable):
                        await away.expand_groups(identifier)
        finally:
            await away.close()
