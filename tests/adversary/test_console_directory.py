"""A directory that means no good to the console: it refers the search and the bind of a sign-in, and invents groups."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from mqenterprise.console.people import LdapPeople, LdapSettings
from mqenterprise.directory.ldap_messages import element, octets
from qmnode.console.port import UnavailableError
from tests.adversary.attacks import Area, attack
from tests.adversary.test_hostile_directory import ROOT, ROOT_DSE, settings_of
from tests.lab.silence import LyingDirectory, Operation, done, entry, result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from qmnode.console.port import Person

ALICE = f"uid=alice,{ROOT}"
PASSWORD = "correct horse"


def sign_in(server: LyingDirectory, folder: Path, **limits: Any) -> Person | None:
    people = LdapPeople(LdapSettings(directory=folder / "directory.yaml"), settings_of(server, **limits))
    return asyncio.run(people.identify("alice", PASSWORD))


def with_groups(groups: Callable[[], Iterable[Operation]]) -> Callable[[str, bytes, bytes], Iterable[Operation]]:
    """What a directory says that has alice, and these groups of hers."""

    def says(base: str, wanted: bytes, cookie: bytes) -> Iterable[Operation]:
        if not base:
            return [ROOT_DSE, done()]
        if b"member" not in wanted:
            return [entry(ALICE, uid=[b"alice"]), done()]
        return groups()

    return says


@attack(
    Area.CONSOLE,
    can="as a directory server, refer the search or the bind of somebody who signs in to another server, to have the "
    "password sent there, in clear",
    promised="nobody is signed in, and the other server hears nothing",
)
@pytest.mark.parametrize("refers", ["search", "reference", "groups", "bind"])
def test_a_sign_in_is_referred_nowhere(tmp_path: Path, refers: str) -> None:
    heard: list[object] = []

    def elsewhere(*asked: object) -> Iterable[Operation]:
        heard.append(asked)
        return [entry(ALICE, uid=[b"alice"]), done()]

    def bound(request: bytes) -> bytes:
        heard.append(request)
        return result(0)

    with LyingDirectory(elsewhere, bound) as other:
        url = f"{other.url}/{ROOT}"

        def says(base: str, wanted: bytes, cookie: bytes) -> Iterable[Operation]:
            if not base:
                return [ROOT_DSE, done()]
            if refers == "reference" and b"member" not in wanted:
                return [reference(url), done()]
            if refers == ("groups" if b"member" in wanted else "search"):
                return [done(code=10, referral=url)]
            return [done()] if b"member" in wanted else [entry(ALICE, uid=[b"alice"]), done()]

        def binds(request: bytes) -> bytes:
            return result(10, url) if refers == "bind" and ALICE.encode() in request.lower() else result(0)

        with LyingDirectory(says, binds) as server:
            try:
                assert sign_in(server, tmp_path) is None
            except UnavailableError as error:
                assert PASSWORD not in str(error)
        assert heard == []


def reference(url: str) -> Operation:
    """A SearchResultReference."""
    return element(0x73, octets(url)), ()


@attack(
    Area.CONSOLE,
    can="as a directory server, put somebody who signs in into groups that are in each other, into one group many "
    "times, into groups without an end, or into groups with names of megabytes",
    promised="each group counts once; names that no role can have are left out; a person in too many groups is not "
    "signed in, and the sentence says so",
)
def test_invented_groups_take_no_memory(tmp_path: Path) -> None:
    circle = [entry(f"cn=g{one},{ROOT}", cn=[b"g%d" % one], member=[b"cn=g%d" % (one % 3)]) for one in (1, 2, 0) * 30]
    large = [entry(f"cn=l{one},{ROOT}", cn=[b"%d" % one * 1_000_000]) for one in range(8)]
    with LyingDirectory(with_groups(lambda: [*large, *circle, done()])) as server:
        person = sign_in(server, tmp_path)
        assert person is not None
        assert person.groups == ("g0", "g1", "g2")
    numbers = itertools.count()

    def endless() -> Iterable[Operation]:
        some = itertools.islice(numbers, 500)
        return [*(entry(f"cn=n{one},{ROOT}", cn=[b"n%d" % one]) for one in some), done(b"more")]

    with LyingDirectory(with_groups(endless)) as server:
        with pytest.raises(UnavailableError, match="in more than 1,024 groups"):
            sign_in(server, tmp_path)
        assert next(numbers) < 3_000


@attack(
    Area.CONSOLE,
    can="as a directory server, give somebody who signs in a name of megabytes, which every session keeps",
    promised="nobody is signed in, and the sentence says so",
)
def test_an_invented_name_takes_no_memory(tmp_path: Path) -> None:
    def says(base: str, wanted: bytes, cookie: bytes) -> Iterable[Operation]:
        return [entry(ALICE, uid=[b"a" * 5_000_000]) if base else ROOT_DSE, done()]

    with LyingDirectory(says) as server, pytest.raises(UnavailableError, match="more than 300 characters"):
        sign_in(server, tmp_path)
