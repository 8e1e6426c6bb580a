"""Machines with several hosts: the mistakes in what a declaration says of them (docs/failover.md).

Such a machine is one queue manager: one store, one identity, one set of keys. One of its hosts is active at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from mqenterprise.topology.names import fold

if TYPE_CHECKING:
    from mqenterprise.topology.declaration import Failover, Machine
    from mqenterprise.topology.problems import Path

_MOST: Final = 3
_RESOURCE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def faults(machine: Machine, machines: Sequence[Machine]) -> Iterator[tuple[Path, str]]:
    """Yield what is wrong with the hosts of one of the machines: the place below it, and what to do."""
    hosts, failover = machine.hosts, machine.failover
    if failover is None and not hosts:
        return
    if machine.foreign:
        yield ("hosts" if hosts else "failover",), f"{machine.name} is a foreign system; only a node fails over"
        return
    if hosts:
        yield from _hosts(machine, machines)
    else:
        yield ("failover",), "failover needs hosts: name the two or three hosts that may run the machine's node"
    if failover is None:
        yield ("hosts",), "hosts need failover: say who moves the node, such as failover: {way: pacemaker, ...}"
        return
    if not machine.addresses:
        sentence = "addresses is missing; name the address that moves with the node, so that others find it on any host"
        yield (), sentence
    for place, sentence in _WAYS[failover.way](failover):
        yield ("failover", *place), sentence
    for name in ("device", "store"):
        path = getattr(failover, name)
        if path is not None and not _is_plain(path):
            yield ("failover", name), f"{path!r} is no absolute path without . and ..; name it in full"


def _hosts(machine: Machine, machines: Sequence[Machine]) -> Iterator[tuple[Path, str]]:
    if len(machine.hosts) == 1:
        yield ("hosts",), f"{machine.hosts[0]} alone cannot fail over; name two or three hosts, or leave hosts out"
    elif len(machine.hosts) > _MOST:
        yield ("hosts",), f"{len(machine.hosts)} hosts are too many; name two or three"
    named = {fold(one.name): one.name for one in machines}
    taken = {_short(host): one.name for one in machines if one is not machine for host in one.hosts}
    seen: dict[str, str] = {}
    for index, host in enumerate(machine.hosts):
        short = _short(host)
        if short in seen:
            yield ("hosts", index), f"{host!r} and {seen[short]!r} are one host; name another to stand by for it"
        elif short in named:
            sentence = f"{host} is the name of the machine {named[short]}; give the host or the machine another name"
            yield ("hosts", index), sentence
        elif short in taken:
            yield ("hosts", index), f"{host} is a host of {taken[short]} already, and runs one node; name another host"
        seen.setdefault(short, host)


def _of_pacemaker(failover: Failover) -> Iterator[tuple[Path, str]]:
    if failover.device is None:
        yield (), "device is missing; Pacemaker mounts the store from a block device that all hosts see: name it"
    if not failover.fencing:
        yield (
            (),
            (
                "fencing is missing; name the fencing devices of the cluster by the identifiers of their resources "
                "(pcs stonith status): without a confirmed fence two hosts would write one store"
            ),
        )
    for index, name in enumerate(failover.fencing):
        if not _RESOURCE.fullmatch(name):
            yield ("fencing", index), f"{name!r} is no identifier of a resource; pcs stonith status shows those there"
    yield from _unused(failover, "storage_class", "size")


def _of_operator(failover: Failover) -> Iterator[tuple[Path, str]]:
    if failover.device is None and failover.store is None:
        yield (
            (),
            (
                "store is missing; name its directory on the file system that the hosts share, or a device that one of "
                "them mounts"
            ),
        )
    if failover.fencing:
        yield ("fencing",), "an operator fences by hand: leave fencing out, or let Pacemaker move the node"
    yield from _unused(failover, "storage_class", "size")


def _of_kubernetes(failover: Failover) -> Iterator[tuple[Path, str]]:
    yield from _unused(failover, "device", "store", "fencing", "filesystem")


def _unused(failover: Failover, *names: str) -> Iterator[tuple[Path, str]]:
    for name in names:
        if name in failover.model_fields_set and getattr(failover, name):
            yield (name,), f"nothing uses {name} with 'way: {failover.way}'; leave it out"


_WAYS: Final = {"pacemaker": _of_pacemaker, "operator": _of_operator, "kubernetes": _of_kubernetes}


def _short(host: str) -> str:
    """The host's own name without the domain, as nodes compare hosts."""
    return fold(host.partition(".")[0])


def _is_plain(path: str) -> bool:
    parts = PurePosixPath(path)
    return parts.is_absolute() and str(parts) == path and ".." not in parts.parts and len(parts.parts) > 1
