"""What goes wrong between us and a server: certificates, binds, broken connections, unknown outcomes, half entries."""

from __future__ import annotations

import datetime
import itertools
import socket
import ssl
import threading
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from mqenterprise.directory.authority import CERTIFICATE_LIFETIME, issue, load_authority
from mqenterprise.directory.connection import LdapConnection
from mqenterprise.directory.entries import Change, ChangeKind
from mqenterprise.directory.errors import (
    BindRefused,
    CertificateRefused,
    ConditionFailed,
    ConstraintViolated,
    DirectoryUnavailable,
    HalfWritten,
    ObjectAlreadyExists,
    ObjectNotFound,
    OutcomeUnknown,
    WrongPassword,
)
from mqenterprise.directory.ldap_messages import Result, error_of
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.settings import DirectorySettings
from mqenterprise.operations.settings import secret_of
from qmnode.amqp.bridges import _secret_in
from qmnode.commands.node_options import Login
from qmnode.directory.port import DirectoryOperationResult, Queue, QueueManager, Site, User
from tests.lab.directory_objects import create
from tests.lab.silence import LyingDirectory, Relay, SilentServer, entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mqenterprise.directory.private_slapd import EmbeddedDirectory
    from tests.lab.samba import DomainController
    from tests.lab.servers import DirectoryServer

    Named = Callable[[str], str]

pytestmark = pytest.mark.servers


@pytest.fixture
def silent() -> Iterator[SilentServer]:
    server = SilentServer()
    yield server
    server.close()


@pytest.fixture
def relay(directory_server: DirectoryServer) -> Iterator[Relay]:
    parts = urlsplit(directory_server.settings.servers[0])
    relay = Relay((str(parts.hostname), parts.port or 636))
    yield relay
    relay.close()


@pytest.fixture
def relayed(directory_server: DirectoryServer, relay: Relay) -> Iterator[EnterpriseDirectory]:
    """Each of the two, open through a relay; the name in its certificate is still the server's."""
    host = urlsplit(directory_server.settings.servers[0]).hostname
    settings = directory_server.settings_with(servers=(f"ldaps://127.0.0.1:{relay.port}",), tls_name=host)
    with EnterpriseDirectory(settings) as directory:
        assert directory.connection.root
        yield directory


def _shake_hands(listener: socket.socket, context: ssl.SSLContext) -> None:
    with suppress(OSError), context.wrap_socket(listener.accept()[0], server_side=True):
        pass


class TestTrust:
    def test_a_certificate_of_another_authority_is_refused(
        self, directory_server: DirectoryServer, slapd: EmbeddedDirectory, domain_controller: DomainController
    ) -> None:
        wrong = slapd.paths.authority if directory_server.is_active_directory else domain_controller.ca_file

        with pytest.raises(CertificateRefused, match="not accepted") as refused:
            LdapConnection(directory_server.settings_with(ca_file=wrong)).read("")
        assert str(wrong) in refused.value.sentence
        assert refused.value.result is DirectoryOperationResult.DIRECTORY_NOT_CONNECTED

    def test_the_system_does_not_trust_a_private_authority(self, directory_server: DirectoryServer) -> None:
        with pytest.raises(CertificateRefused, match="the system's authorities"):
            LdapConnection(directory_server.settings_with(ca_file=None)).read("")

    def test_a_certificate_for_another_name_is_refused(self, directory_server: DirectoryServer) -> None:
        with pytest.raises(CertificateRefused, match="not accepted"):
            LdapConnection(directory_server.settings_with(tls_name="other.lab.test")).read("")

    @pytest.mark.one_server(reason="the tests issue the certificate of the private slapd")
    def test_an_expired_certificate_is_refused(self, slapd: EmbeddedDirectory, tmp_path: Path) -> None:
        authority = load_authority(slapd.paths.authority, slapd.paths.tls / "ca.key")
        past = datetime.datetime.now(datetime.UTC) - CERTIFICATE_LIFETIME - datetime.timedelta(days=1)
        issue(authority, "localhost", ["localhost", "127.0.0.1"], past).save(tmp_path / "c.pem", tmp_path / "k.pem")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "c.pem", tmp_path / "k.pem")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            shaking = threading.Thread(target=_shake_hands, args=(listener, context), daemon=True)
            shaking.start()
            url = f"ldaps://127.0.0.1:{listener.getsockname()[1]}"
            with pytest.raises(CertificateRefused, match="certificate has expired"):
                LdapConnection(slapd.client_settings().model_copy(update={"servers": (url,)})).read("")
            shaking.join(120)

    def test_verification_can_be_switched_off_by_name_only(self, directory_server: DirectoryServer) -> None:
        settings = directory_server.settings_with(ca_file=None, verify=False)

        assert LdapConnection(settings).root

    def test_a_wrong_password_is_refused(self, directory_server: DirectoryServer) -> None:
        settings = directory_server.settings_with(password="not this one", password_file=None)

        with pytest.raises(WrongPassword, match="password is wrong"):
            LdapConnection(settings).read("")

    @pytest.mark.one_server(reason="no server is asked")
    def test_a_wrong_password_is_told_from_other_refusals_of_an_operation(self) -> None:
        errors = {code: error_of(Result(code, "", {}), "reading CN=a", "alice") for code in (8, 49, 50)}

        assert [code for code, error in errors.items() if isinstance(error, WrongPassword)] == [49]

    @pytest.mark.one_server(reason="the private slapd has no port without TLS")
    def test_a_password_in_clear_is_refused_by_the_server(self, domain_controller: DomainController) -> None:
        settings = domain_controller.settings(servers=(f"ldap://{domain_controller.address}",), start_tls=False)

        with pytest.raises(BindRefused, match="secured connection"):
            LdapConnection(settings).read("")

    @pytest.mark.one_server(reason="the private slapd has no port without TLS")
    def test_start_tls_secures_the_plain_port(self, domain_controller: DomainController) -> None:
        settings = domain_controller.settings(servers=(f"ldap://{domain_controller.address}",))

        assert LdapConnection(settings).root == domain_controller.root


class TestFailOver:
    def test_a_server_that_is_down_or_silent_is_passed_over(
        self, directory_server: DirectoryServer, silent: SilentServer
    ) -> None:
        servers = ("ldaps://127.0.0.1:1", silent.url, *directory_server.settings.servers)
        connection = LdapConnection(directory_server.settings_with(servers=servers, connect_timeout=3))

        assert connection.root
        connection.read(connection.root, ("1.1",))

        assert silent.accepted == 1, "a server that failed is not tried first again"
        connection.close()

    def test_what_is_wrong_with_each_server_is_said(
        self, directory_server: DirectoryServer, silent: SilentServer
    ) -> None:
        servers = ("ldaps://127.0.0.1:1", silent.url)

        with pytest.raises(DirectoryUnavailable) as refused:
            LdapConnection(directory_server.settings_with(servers=servers, connect_timeout=0.2)).read("")

        assert "127.0.0.1:1 cannot be reached" in refused.value.sentence
        assert f"{silent.url} does not answer within 0.2 s" in refused.value.sentence

    def test_a_broken_connection_is_replaced(self, relayed: EnterpriseDirectory, relay: Relay) -> None:
        relay.cut()
        with pytest.raises(DirectoryUnavailable):
            relayed.enterprise()

        relay.mend()

        assert relayed.enterprise().identifier is not None

    def test_an_idle_close_by_the_server_goes_unnoticed(self, relayed: EnterpriseDirectory, relay: Relay) -> None:
        relayed.enterprise()
        relay.cut()
        relay.mend()

        assert relayed.enterprise().identifier is not None

    def test_a_search_goes_on_at_another_server(
        self, directory_server: DirectoryServer, relay: Relay, fresh_name: Named
    ) -> None:
        direct = directory_server.settings.servers[0]
        host = urlsplit(direct).hostname
        settings = directory_server.settings_with(
            servers=(f"ldaps://127.0.0.1:{relay.port}", direct), tls_name=host, page_size=2
        )
        with EnterpriseDirectory(settings) as directory:
            names = {create(directory, Site(name=fresh_name("Many"))).name for _ in range(6)}
            found = []
            for site in directory.sites.list():
                found.append(site.name)
                if len(found) == 3:
                    relay.cut()

        assert names <= set(found)
        assert len(found) == len(set(found))


class TestUnknownOutcome:
    """The request arrived, the connection broke before the answer."""

    def test_a_write_that_took_effect_is_not_repeated(
        self, relayed: EnterpriseDirectory, relay: Relay, directory: EnterpriseDirectory, fresh_name: Named
    ) -> None:
        name = fresh_name("Once")
        relayed.enterprise()
        relay.swallow_next_answer()

        site = create(relayed, Site(name=name))

        assert relay.swallowed.is_set()
        found = directory.sites.find(name)
        assert found is not None and found.identifier == site.identifier

    def test_a_write_that_took_effect_late_is_done(
        self,
        relayed: EnterpriseDirectory,
        relay: Relay,
        directory: EnterpriseDirectory,
        fresh_name: Named,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The server is asked before it has done the first request, and refuses the repeated one."""
        name = fresh_name("Late")
        create(relayed, Site(name=fresh_name("Before")))  # what an addition asks first is known from now on
        really, answers = relayed.connection._is_added, [False]
        monkeypatch.setattr(relayed.connection, "_is_added", lambda *of: answers.pop() if answers else really(*of))
        relay.swallow_next_answer()

        site = create(relayed, Site(name=name))

        found = directory.sites.find(name)
        assert not answers and found is not None and found.identifier == site.identifier

    def test_a_delete_that_took_effect_is_done(
        self, relayed: EnterpriseDirectory, relay: Relay, directory: EnterpriseDirectory, fresh_name: Named
    ) -> None:
        user = create(directory, User(name=fresh_name("gone")))
        relayed.enterprise()
        relay.swallow_next_answer()

        relayed.connection.delete(str(user.full_path))

        assert relay.swallowed.is_set()
        assert directory.users.find(user.name) is None

    def test_a_change_that_took_effect_is_done(
        self, relayed: EnterpriseDirectory, relay: Relay, directory: EnterpriseDirectory, fresh_name: Named
    ) -> None:
        site = create(directory, Site(name=fresh_name("Changed")))
        relayed.enterprise()
        relay.swallow_next_answer()

        relayed.connection.modify(str(site.full_path), [Change(ChangeKind.REPLACE, "mSMQInterval1", (b"77",))])

        assert relay.swallowed.is_set()
        assert site.identifier is not None
        assert directory.sites.get(site.identifier).intra_site_replication_interval == 77

    def test_nobody_can_say(
        self, relayed: EnterpriseDirectory, relay: Relay, fresh_name: Named, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        name = fresh_name("Perhaps")
        dn = f"CN={name},{relayed.connection.dialect.contexts.sites}"
        create(relayed, Site(name=fresh_name("Before")))  # what an addition asks first is known from now on
        broken = relayed.connection.pool.fail

        def fail_and_cut(url: str) -> None:
            relay.cut()
            broken(url)

        monkeypatch.setattr(relayed.connection.pool, "fail", fail_and_cut)
        relay.swallow_next_answer()

        with pytest.raises(OutcomeUnknown, match="look at the object"):
            relayed.connection.add(dn, ("top", "site"), {})


class TestConditions:
    def test_compare_and_set(self, directory: EnterpriseDirectory, fresh_name: Named) -> None:
        dn = str(create(directory, Site(name=fresh_name("Site"))).full_path)
        directory.connection.modify(dn, [Change(ChangeKind.ADD, "adminDescription", (b"one",))])

        def swap(old: bytes, new: bytes) -> None:
            changes = [
                Change(ChangeKind.DELETE, "adminDescription", (old,)),
                Change(ChangeKind.ADD, "adminDescription", (new,)),
            ]
            directory.connection.modify(dn, changes)

        swap(b"one", b"two")
        with pytest.raises(ConditionFailed):
            swap(b"one", b"three")
        assert directory.connection.read(dn).first("adminDescription") == b"two"

    def test_what_is_not_there_cannot_be_changed_or_deleted(self, directory: EnterpriseDirectory) -> None:
        dn = f"CN=nobody,{directory.connection.dialect.contexts.sites}"

        with pytest.raises(ObjectNotFound):
            directory.connection.modify(dn, [Change(ChangeKind.REPLACE, "mSMQInterval1", (b"1",))])
        with pytest.raises(ObjectNotFound):
            directory.connection.delete(dn)
        assert list(directory.connection.search(dn, "(objectClass=*)")) == []

    @pytest.mark.parametrize(
        ("parent", "object_class"),
        [("sites", "mSMQQueue"), ("enterprise", "mSMQConfiguration"), ("computers", "mSMQSettings")],
    )
    def test_an_object_in_the_wrong_place_is_refused(
        self, directory: EnterpriseDirectory, fresh_name: Named, parent: str, object_class: str
    ) -> None:
        dn = f"CN={fresh_name('wrong')},{getattr(directory.connection.dialect.contexts, parent)}"

        with pytest.raises(ConstraintViolated):
            directory.connection.add(dn, ("top", object_class), {})
        with pytest.raises(ObjectNotFound):
            directory.connection.read(dn)

    @pytest.mark.parametrize(
        ("attribute", "value"),
        [
            ("mSMQLabelEx", b"x" * 125),
            ("mSMQQueueType", b"short"),
            ("mSMQPrivacyLevel", b"3"),
            ("mSMQJournal", b"maybe"),
        ],
    )
    def test_a_value_out_of_range_leaves_nothing_behind(
        self, directory: EnterpriseDirectory, fresh_name: Named, attribute: str, value: bytes
    ) -> None:
        node = directory.queue_managers.add(QueueManager(computer_name=fresh_name("NODE")))
        dn = f"CN=orders,{node.full_path}"

        with pytest.raises(ConstraintViolated):
            directory.connection.add(dn, ("top", "mSMQQueue"), {attribute: (value,)})
        assert list(directory.queues.of(node.computer_name)) == []


class TestHalfWritten:
    """On Active Directory the server gives every entry its GUID, so half of an object is made by other means there."""

    @pytest.mark.one_server(reason="Active Directory gives every entry its identifier")
    def test_an_entry_without_identifier_is_named_and_left_out(
        self, slapd: EmbeddedDirectory, fresh_name: Named
    ) -> None:
        name = fresh_name("Half")
        with EnterpriseDirectory(slapd.client_settings()) as directory:
            contexts = directory.connection.dialect.contexts
            with directory.connection.pool.session() as session:
                assert session.connection.add(f"CN={name},{contexts.sites}", ["top", "site"], {"cn": [name]})

            with pytest.raises(HalfWritten, match="lacks objectGUID"):
                directory.sites.find(name)
            assert name not in {site.name for site in directory.sites.list()}
            assert any(name in problem.sentence for problem in directory.half_written())
            directory.connection.delete(f"CN={name},{contexts.sites}")

    def test_a_computer_without_configuration_is_no_queue_manager_yet(
        self, directory: EnterpriseDirectory, fresh_name: Named
    ) -> None:
        name = fresh_name("HALF")
        dialect = directory.connection.dialect
        directory.connection.add(
            f"CN={name},{dialect.contexts.computers}", ("top", "computer"), dialect.account("computer", name)
        )

        assert directory.queue_managers.find(name) is None
        assert directory.queue_managers.add(QueueManager(computer_name=name)).identifier is not None

    def test_adding_what_exists_changes_nothing(self, directory: EnterpriseDirectory, fresh_name: Named) -> None:
        node = directory.queue_managers.add(QueueManager(computer_name=fresh_name("NODE"), journal_quota=7))
        directory.queues.add(Queue(pathname=f"{node.computer_name}\\orders", label="mine"))

        with pytest.raises(ObjectAlreadyExists):
            directory.queue_managers.add(QueueManager(computer_name=node.computer_name, journal_quota=8))

        found = directory.queue_managers.find(node.computer_name)
        assert found is not None and found.journal_quota == 7
        assert [queue.label for queue in directory.queues.of(node.computer_name)] == ["mine"]


@pytest.mark.one_server(reason="nothing of it is the server's")
def test_a_password_file_is_read_anew(slapd: EmbeddedDirectory, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("wrong\n")
    settings = slapd.client_settings().model_copy(update={"password_file": file})
    connection = LdapConnection(settings)
    with pytest.raises(BindRefused):
        connection.read("")

    file.write_text(slapd.client_settings().secret() + "\n")

    assert connection.root


@pytest.mark.parametrize("doing", ["reading", "searching"])
def test_a_server_that_never_ends_is_left(slapd: EmbeddedDirectory, doing: str) -> None:
    with LyingDirectory(lambda *_: itertools.repeat(entry("cn=x"))) as server:
        changed = {"servers": (server.url,), "start_tls": False, "kind": "openldap", "root": "dc=lab,dc=test"}
        connection = LdapConnection(slapd.client_settings().model_copy(update=changed))
        with pytest.raises(DirectoryUnavailable, match="more entries than it was asked for"):
            if doing == "reading":
                connection.read("cn=x")
            else:
                list(connection.search("cn=x", "(objectClass=*)"))


@pytest.mark.public_report("hashicorp/vault#20439", "jdx/npm-register#72")
@pytest.mark.parametrize("content", ["secrët", "secrët\n", "secrët\r\n", "\ufeffsecrët\r\n", " secrët \n"])
def test_a_password_is_read_from_a_file_as_editors_write_it(tmp_path: Path, content: str) -> None:
    file = tmp_path / "password"
    file.write_bytes(content.encode())
    file.chmod(0o600)
    password = " secrët " if content[0] == " " else "secrët"
    assert DirectorySettings.model_construct(password=None, password_file=file).secret() == password
    assert _secret_in(file) == password
    login = Login(user="alice", password_file=file).given()
    assert login is not None and login.password == password
    assert secret_of(file, "the secret") == "secrët"
