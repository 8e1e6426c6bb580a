"""The work that distribution lists may cause: members read once, and bounded in number and time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mqenterprise.directory import repositories
from mqenterprise.directory.entries import Entry
from mqenterprise.directory.errors import ConstraintViolated
from mqenterprise.directory.repositories import MOST_NAMES, MOST_QUEUES, resolve_distribution_list
from qmnode.structures.guid import Guid

OUTERMOST = Guid(b"the list, 16 by.")


class Groups:
    """A directory of lists by name; every other name is an alias."""

    def __init__(self, **lists: list[str]) -> None:
        self._lists = lists
        self.reads: list[str] = []
        self.dialect = SimpleNamespace(by_guid=lambda _: ("cn=outermost", "", True))

    def read(self, dn: str, _: Any) -> Entry:
        self.reads.append(dn)
        name = dn.removeprefix("cn=")
        if name in self._lists:
            members = tuple(f"cn={member}".encode() for member in self._lists[name])
            return Entry(dn, {"objectclass": (b"group",), "member": members})
        classes = (b"msMQ-Custom-Recipient",)
        return Entry(dn, {"objectclass": classes, "msmq-recipient-formatname": (f"DIRECT=OS:h\\{name}".encode(),)})


def resolved(groups: Groups, *limits: float) -> tuple[str, ...]:
    return resolve_distribution_list(groups, OUTERMOST, *limits)  # type: ignore[arg-type]


def test_each_member_is_read_once_however_often_and_in_what_circles_it_is_named() -> None:
    names = [f"q{number}" for number in range(20)]
    inner = {f"inner{number}": ["outermost", "inner0", *names] for number in range(30)}
    groups = Groups(outermost=[*inner, "outermost"], **inner)
    assert resolved(groups) == tuple(f"DIRECT=OS:h\\{name}" for name in names)
    assert len(groups.reads) == 1 + 30 + 20


def test_lists_of_lists_that_name_few_queues_very_often_are_refused() -> None:
    names = [f"q{number}" for number in range(1_000)]
    inner = {f"inner{number}": names for number in range(MOST_NAMES // len(names) + 1)}
    groups = Groups(outermost=list(inner), **inner)
    with pytest.raises(ConstraintViolated, match=r"cn=outermost and .* name more than 50,000 members: split it"):
        resolved(groups)
    assert len(groups.reads) < 2_000


def test_lists_of_lists_without_a_queue_are_bounded() -> None:
    inner = {f"inner{number}": [f"inner{number + 1}"] for number in range(MOST_QUEUES + 10)}
    groups = Groups(outermost=["inner0"], **inner)
    with pytest.raises(ConstraintViolated, match="more than 10,000 members"):
        resolved(groups)
    assert len(groups.reads) <= MOST_QUEUES + 1


def test_a_list_that_takes_too_long_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups(outermost=[f"q{number}" for number in range(100)])
    monkeypatch.setattr(repositories, "monotonic", lambda: float(len(groups.reads)))
    with pytest.raises(ConstraintViolated, match=r"within 50 s: .* split it"):
        resolved(groups, 50.0)
    assert len(groups.reads) <= 53
