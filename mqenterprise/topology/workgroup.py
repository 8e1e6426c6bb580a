"""Enterprises without a directory (workgroup mode, MS-MQMQ 1.1): what a declaration cannot have then, and why.

Message security by published keys, routing, public queues, distribution lists and aliases need a directory. Other
values are refused if only a directory brings them to nodes. Private queues, direct names, TLS and bridges need none.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from qmnode.objects.rows import Door
from qmnode.objects.table import ENTERPRISE, MACHINE, SITE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import BaseModel

    from mqenterprise.topology.declaration import Declaration
    from mqenterprise.topology.problems import Path
    from qmnode.objects.rows import Rows

NONE_HERE: Final = "'directory: none'"
_DIRECT: Final = r"send to its queues by direct names, DIRECT=OS:machine\private$\queue"
_ROUTES: Final = f"routing needs a directory that holds sites and links, and this enterprise has {NONE_HERE}"
_SIGNS: Final = (
    f"signatures are verified with certificates that a directory publishes, and this enterprise has {NONE_HERE}"
)
_OBJECT: Final = f"is an object of a directory, and this enterprise has {NONE_HERE}"
_SECTIONS: Final = {
    "routing_links": f"{_ROUTES}; delete the link: machines connect to each other directly",
    "foreign_sites": f"{_ROUTES}; delete the foreign site, and use a bridge to reach another message system",
    "users": f"{_SIGNS}; delete the user. An access list takes SIDs and accounts of the machine (user:alice), and with "
    "TLS a node proves who it is",
    "queue_aliases": f"a queue alias {_OBJECT}; delete it, and send to the queue by its direct name",
    "distribution_lists": f"a distribution list {_OBJECT}; delete it, and send to several direct names, joined by "
    "commas (MS-MQMQ 2.1.7)",
}
"""Sections whose objects need a directory."""
_ROLES: Final = {
    "routing_server": f"{_ROUTES}; leave the role out: machines connect to each other directly",
    "connector": f"{_ROUTES}; leave the role out, and use a bridge to reach another message system",
}
_NODE_QUOTA: Final = "the directory brings it to a node; set {} under queue_manager_settings in the inventory"
_VALUES: Final = {
    "quota": _NODE_QUOTA.format("quotas.queue_manager_quota"),
    "journal_quota": _NODE_QUOTA.format("quotas.journal_quota"),
    "out_routing_servers": f"{_ROUTES}; leave it out",
    "in_routing_servers": f"{_ROUTES}; leave it out",
    "foreign": f"only a directory knows foreign systems; delete the machine, and {_DIRECT}",
    "default_time_to_live": "the directory brings it to nodes; programs set the time to reach queue of each message",
}
_OTHERWISE: Final = f"only a directory holds it, and this enterprise has {NONE_HERE}; leave it out"


def refusals(declared: Declaration) -> Iterator[tuple[Path, str]]:
    """Yield the place of each value that needs a directory, with a sentence that says why and what to do."""
    for section, sentence in _SECTIONS.items():
        yield from (((section, position), sentence) for position in range(len(getattr(declared, section))))
    yield from _values(("enterprise",), declared.enterprise, ENTERPRISE)
    for position, site in enumerate(declared.sites):
        yield from _values(("sites", position), site, SITE)
    for position, machine in enumerate(declared.machines):
        here: Path = ("machines", position)
        yield from _values(here, machine, MACHINE, but=("sites", "dns_name"))
        for index, role in enumerate(machine.roles):
            if role != "client":
                otherwise = f"a {role.replace('_', ' ')} needs a directory; leave the role out"
                yield (*here, "roles", index), _ROLES.get(role, otherwise)
        if machine.hosts:
            yield (
                (*here, "hosts"),
                "a node of a workgroup chooses its identifier when it is first started, which the certificates of "
                "several hosts cannot know; declare a machine with hosts in an enterprise with a directory",
            )
        if machine.foreign_sites:
            yield (*here, "foreign_sites"), f"{_ROUTES}; leave it out"
    for position, queue in enumerate(declared.queues):
        here = ("queues", position)
        if not queue.private:
            yield here, f"a public queue {_OBJECT}; add private: true"
        if attrgetter("authentication")(queue):
            yield (*here, "authentication"), f"{_SIGNS}; leave it out: the queue would refuse every message"
        if attrgetter("privacy_level")(queue) == "body":
            yield (
                (*here, "privacy_level"),
                "messages are encrypted with keys that a directory publishes, and this enterprise has "
                f"{NONE_HERE}; leave it out, and encrypt connections with TLS (queue_manager_tls: require)",
            )


def _values(here: Path, item: BaseModel, rows: Rows, but: Sequence[str] = ()) -> Iterator[tuple[Path, str]]:
    """Yield the properties of an object that have another value than the default."""
    for row in rows.at(Door.DECLARATION):
        if row.name in type(item).model_fields and row.name not in but:
            value = attrgetter(row.name)(item)
            if value != row.form.write(row.default):
                yield (*here, row.name), _VALUES.get(row.name, _OTHERWISE)
