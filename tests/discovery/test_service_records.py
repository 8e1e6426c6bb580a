"""Servers found by SRV records: order, site, TTL, silence; and a whole directory opened by its domain's name."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from mqenterprise.directory.errors import DirectoryUnavailable
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.discovery.service_records import ServerFinder, ServiceRecord, in_order
from tests.lab.name_server import NameServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqenterprise.directory.private_slapd import EmbeddedDirectory
    from tests.lab.samba import DomainController

DOMAIN = "_ldap._tcp.dc._msdcs.ent.test"
SITE = "_ldap._tcp.hamburg._sites.dc._msdcs.ent.test"


@pytest.fixture
def names() -> Iterator[NameServer]:
    server = NameServer()
    yield server
    server.close()


def finder(names: NameServer, **more: object) -> ServerFinder:
    more = {"site": None, "lifetime": 5.0, "draw": random.Random(7)} | more
    return ServerFinder("ent.test", nameservers=[names.address], **more)  # type: ignore[arg-type]


def test_lower_priorities_come_first(names: NameServer) -> None:
    names.add(DOMAIN, "SRV", "20 100 389 far.ent.test.", "0 100 389 near.ent.test.", "10 0 3890 middle.ent.test.")

    assert finder(names).urls() == [
        "ldap://near.ent.test:389",
        "ldap://middle.ent.test:3890",
        "ldap://far.ent.test:389",
    ]


def test_servers_of_the_site_come_first_and_each_once(names: NameServer) -> None:
    names.add(DOMAIN, "SRV", "0 100 389 berlin.ent.test.", "10 100 389 hamburg.ent.test.")
    names.add(SITE, "SRV", "10 100 389 hamburg.ent.test.")

    assert finder(names, site="Hamburg").urls() == ["ldap://hamburg.ent.test:389", "ldap://berlin.ent.test:389"]


def test_a_site_without_servers_uses_the_domain(names: NameServer) -> None:
    names.add(DOMAIN, "SRV", "0 100 389 berlin.ent.test.")

    assert finder(names, site="hamburg").urls() == ["ldap://berlin.ent.test:389"]


def test_a_domain_without_active_directory_has_the_plain_records(names: NameServer) -> None:
    names.add("_ldaps._tcp.ent.test", "SRV", "0 0 6360 ldap.ent.test.")

    assert finder(names).urls() == ["ldaps://ldap.ent.test:6360"]


def test_weights_share_the_load() -> None:
    draw = random.Random(1)
    records = [
        ServiceRecord("ldap", host, 389, 0, weight) for host, weight in (("a", 60), ("b", 30), ("c", 10), ("d", 0))
    ]

    first = Counter(in_order(records, draw)[0].host for _ in range(5000))

    assert 0.55 < first["a"] / 5000 < 0.65
    assert 0.25 < first["b"] / 5000 < 0.35
    assert 0.07 < first["c"] / 5000 < 0.13
    assert first["d"] / 5000 < 0.03
    assert all(len(in_order(records, draw)) == 4 for _ in range(100))


def test_an_answer_is_good_for_its_ttl(names: NameServer) -> None:
    now = 0.0
    names.add(DOMAIN, "SRV", "0 100 389 old.ent.test.", ttl=60)
    found = finder(names, clock=lambda: now)
    assert found.urls() == ["ldap://old.ent.test:389"]
    names.add(DOMAIN, "SRV", "0 100 389 new.ent.test.", ttl=60)

    now = 59.0
    assert found.urls() == ["ldap://old.ent.test:389"]
    assert len(names.questions) == 1
    now = 60.0
    assert found.urls() == ["ldap://new.ent.test:389"]


def test_silent_name_servers_leave_what_was_known(names: NameServer) -> None:
    now = 0.0
    names.add(DOMAIN, "SRV", "0 100 389 dc.ent.test.", ttl=60)
    found = finder(names, lifetime=0.5, clock=lambda: now)
    assert found.urls()
    names.silent = True

    now = 100.0
    assert found.urls() == ["ldap://dc.ent.test:389"]
    asked = len(names.questions)
    now = 110.0
    assert found.urls() == ["ldap://dc.ent.test:389"]
    assert len(names.questions) == asked, "not asked for each connection"
    names.silent = False
    names.add(DOMAIN, "SRV", "0 100 389 back.ent.test.")
    now = 200.0
    assert found.urls() == ["ldap://back.ent.test:389"]


def test_a_service_that_is_decidedly_not_there(names: NameServer) -> None:
    names.add(DOMAIN, "SRV", "0 0 0 .")

    assert finder(names).urls() == []


@pytest.mark.servers
@pytest.mark.one_server(reason="no server is reached")
def test_no_server_found_is_said(slapd: EmbeddedDirectory, names: NameServer) -> None:
    settings = slapd.client_settings().model_copy(
        update={"servers": (), "domain": "nowhere.test", "nameservers": (names.address,), "connect_timeout": 30}
    )

    with (
        EnterpriseDirectory(settings) as directory,
        pytest.raises(DirectoryUnavailable, match="neither configured nor"),
    ):
        directory.enterprise()


@pytest.mark.servers
@pytest.mark.one_server(reason="only a domain controller serves DNS")
def test_a_domain_controller_is_found_by_its_own_name_server(domain_controller: DomainController) -> None:
    settings = domain_controller.settings(
        servers=(),
        domain=domain_controller.domain,
        site="Default-First-Site-Name",
        nameservers=(domain_controller.address,),
    )

    with EnterpriseDirectory(settings) as directory:
        assert directory.enterprise().identifier is not None
        assert directory.connection.pool.order() == [f"ldap://{domain_controller.host}:389"]


@pytest.mark.servers
@pytest.mark.one_server(reason="records of a domain without Active Directory")
def test_an_openldap_server_is_found_by_its_domain(slapd: EmbeddedDirectory, names: NameServer) -> None:
    host, port = slapd.settings.host, slapd.settings.port
    names.add("_ldaps._tcp.lab.test", "SRV", "0 0 1 down.lab.test.", f"10 0 {port} localhost.")
    names.add("down.lab.test", "A", host)
    names.add("localhost", "A", host)
    settings = slapd.client_settings().model_copy(
        update={"servers": (), "domain": "lab.test", "nameservers": (names.address,)}
    )

    with EnterpriseDirectory(settings) as directory:
        assert directory.enterprise().identifier is not None
