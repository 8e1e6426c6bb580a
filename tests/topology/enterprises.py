"""Random enterprises that hold together, for property tests."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import strategies as st

from mqenterprise.topology.access_lists import BY_KIND
from mqenterprise.topology.names import fold
from qmnode.objects.rows import FLAG, GUID, MULTICAST, QUOTA, Door, Kind
from qmnode.objects.table import ENTERPRISE, MACHINE, QUEUE, ROUTING_LINK, SITE

_LETTERS = "abcXYZ019,+\"'#<>= ;äßØ漢-"
_names = st.text(_LETTERS, min_size=1, max_size=20).filter(lambda text: text == text.strip())
_machine_names = st.text("abcXYZ019-äß漢", min_size=1, max_size=15)
_queue_names = _names.filter(lambda text: ";" not in text)
STRUCTURE = {
    *("sites", "routing_server", "supporting_server", "directory_server", "foreign"),
    *("dns_name", "out_routing_servers", "in_routing_servers", "access"),
}
"""Properties of a machine that depend on others. A DNS name is always declared, since an omitted one stays."""
_SERVICES = st.lists(st.sampled_from(["supporting_server", "directory_server"]), unique=True)
_quotas = st.integers(0, 0xFFFFFFFE) | st.just("none")


def _values(rows, *but):
    """Any values of the declared properties, in the form of a declaration."""
    chosen = {row.name: _value(row.form) for row in rows.at(Door.DECLARATION) if row.name not in but}
    return st.fixed_dictionaries({}, optional=chosen)


def _value(form):
    if form.choices:
        return st.sampled_from(sorted(form.choices))
    if form is FLAG:
        return st.booleans()
    if form is QUOTA:
        return _quotas
    if form is GUID:
        return st.uuids(allow_nil=False).map(str)
    if form is MULTICAST:
        return st.tuples(st.integers(224, 239), st.integers(0, 255), st.integers(0, 65535)).map(
            lambda parts: "{}.0.0.{}:{}".format(*parts)
        )
    return st.integers(form.least, form.most) if form.type is int else _names


def _unique(names, low, high):
    return st.lists(names, min_size=low, max_size=high, unique_by=fold)


@functools.cache
def _certificate(number):
    """A self-signed certificate as PEM text, made once."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"signer {number}")])
    begins = datetime(2026, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), number, begins, begins + timedelta(days=3650))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


_certificates = st.lists(st.integers(1, 4), max_size=3, unique=True).map(lambda drawn: [*map(_certificate, drawn)])
"""Of a user; always declared, since omitted ones stay."""
SEEN = {"to": "Everyone", "allow": ["get_properties", "get_permissions"]}
"""What the tests after these need of the enterprise."""
_FEW = st.sampled_from(["a", "B", "c", "D", "e, f"])
_FEW_MACHINES = st.sampled_from(["r1", "R2", "m1", "M2", "m3"])


@st.composite
def enterprises(draw, alike=False):
    """Plain data of a declaration, as YAML would give it; those ``alike`` share most of their names."""
    names = draw(_unique(_FEW if alike else _names, 1, 6 if not alike else 5))
    cut = draw(st.integers(1, len(names)))
    sites, foreign = names[:cut], names[cut:]
    machines = draw(_machines(sites, foreign, _FEW_MACHINES if alike else _machine_names))
    users = draw(_unique(_FEW if alike else _names.filter(lambda name: fold(name) != "everyone"), 0, 3))
    trustees = ["Everyone", *users]
    queues = draw(_queues(machines, ["Everyone", *users], _FEW if alike else _queue_names))
    return {
        "enterprise": {
            "name": "E",
            **draw(_values(ENTERPRISE, "access")),
            "access": [SEEN, *draw(_lists(users, Kind.ENTERPRISE))],
        },
        "sites": [
            {
                "name": name,
                **draw(_values(SITE, "foreign", "access")),
                "access": draw(_lists(trustees, Kind.SITE)),
            }
            for name in sites
        ],
        "foreign_sites": [{"name": name, "access": draw(_lists(trustees, Kind.SITE))} for name in foreign],
        "routing_links": draw(_links(sites, foreign, machines)),
        "machines": machines,
        "users": [{"name": name, "certificates": draw(_certificates)} for name in users],
        "queues": queues,
        **draw(_recipients(queues)),
    }


@st.composite
def _recipients(draw, queues):
    """Aliases, and lists that hold queues, aliases and the lists before them."""
    aliases = draw(_unique(st.sampled_from(["alias, 1", "Alias (2)"]), 0, 2))
    lists, known = [], [*(f"{queue['machine']}\\{queue['name']}" for queue in queues), *aliases]
    for name in draw(_unique(st.sampled_from(["list 1", "List+2", "list=3"]), 0, 3)):
        members = draw(_unique(st.sampled_from(known), 0, 4)) if known else []
        lists.append({"name": name, "members": members})
        known.append(name)
    targets = st.sampled_from([r"DIRECT=OS:one\orders", r"DIRECT=TCP:192.0.2.1\private$\orders"])
    return {
        "queue_aliases": [{"name": name, "format_name": draw(targets)} for name in aliases],
        "distribution_lists": draw(st.permutations(lists)),
    }


@st.composite
def _machines(draw, sites, foreign, names):
    machines = []
    own = _values(MACHINE, *STRUCTURE)
    for name in draw(_unique(names, 0, 5)):
        machine = {"name": name, "sites": draw(_unique(st.sampled_from(sites), 1, 2))} | draw(own)
        machine["dns_name"] = draw(st.sampled_from(["a.lab.test", "b.lab.test"]))
        services = draw(_SERVICES)
        if draw(st.booleans()):
            machine["roles"] = ["routing_server", *services]
            if foreign and draw(st.booleans()):
                machine["roles"].append("connector")
                machine["foreign_sites"] = [draw(st.sampled_from(foreign))]
        else:
            servers = [
                server["name"]
                for server in machines
                if "routing_server" in server.get("roles", ()) and set(server["sites"]) & set(machine["sites"])
            ]
            for way in ("out_routing_servers", "in_routing_servers") if servers else ():
                machine[way] = draw(_unique(st.sampled_from(servers), 0, 3))
            if services:
                machine["roles"] = services
            else:
                machine["foreign"] = draw(st.booleans())
        machines.append(machine)
    return machines


@st.composite
def _links(draw, sites, foreign, machines):
    links = []
    for first, one in enumerate(sites):
        for other in sites[first + 1 :] + foreign:
            if draw(st.booleans()):
                gates = [
                    machine["name"]
                    for machine in machines
                    if "routing_server" in machine.get("roles", ())
                    and {one, other} & {*machine["sites"], *machine.get("foreign_sites", ())}
                ]
                chosen = draw(_unique(st.sampled_from(gates), 0, 2)) if gates else []
                cost = draw(st.integers(1, 999_999))
                own = draw(_values(ROUTING_LINK, "cost", "site_gates"))
                links.append({"sites": [one, other], "cost": cost, "site_gates": chosen, **own})
    return links


@st.composite
def _lists(draw, trustees, kind):
    """An access list; always declared, since an omitted one stays."""
    chosen = st.lists(st.sampled_from(sorted(BY_KIND[kind])), min_size=1, max_size=4)
    who = draw(_unique(st.sampled_from(trustees), 0, 2)) if trustees else []
    return [{"to": to, "allow": draw(chosen)} for to in who]


@st.composite
def _queues(draw, machines, trustees, names):
    queues = []
    for machine in machines:
        for name in draw(_unique(names, 0, 3)):
            queue = {"machine": machine["name"], "name": name, **draw(_values(QUEUE, "transactional", "access"))}
            queue["transactional"] = fold(name) in ("a", "c")  # a queue cannot change it
            queue["access"] = draw(_lists(trustees, Kind.QUEUE))
            queues.append(queue)
    return queues
