"""A directory server that means no good: to the commands, to a node and to the console, which read from it."""

from __future__ import annotations

import itertools
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from mqenterprise.cli import app
from mqenterprise.directory.connection import LdapConnection
from mqenterprise.directory.errors import ConstraintViolated, DirectoryError, DirectoryUnavailable
from mqenterprise.directory.ldap_messages import ENUMERATED, INTERMEDIATE, SEQUENCE, element, integer, octets
from mqenterprise.directory.logins import groups_of
from mqenterprise.directory.notification import SYNC_STATE, Changed, Watcher
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.settings import DirectorySettings
from tests.adversary.attacks import Area, attack
from tests.lab.silence import LyingDirectory, Operation, done, entry
from tests.lab.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from click.testing import Result

ROOT = "dc=lab,dc=test"
ROOT_DSE = entry(
    "",
    namingContexts=[ROOT.encode()],
    rootDomainNamingContext=[ROOT.encode()],
    configurationNamingContext=[f"CN=Configuration,{ROOT}".encode()],
    defaultNamingContext=[ROOT.encode()],
)
GUIDS = (number.to_bytes(16, "big") for number in itertools.count(1))


def settings_of(server: LyingDirectory, **more: Any) -> DirectorySettings:
    given = {"servers": (server.url,), "start_tls": False, "kind": "openldap", "root": ROOT, "bind": "anonymous"}
    return DirectorySettings.model_validate(given | more)


def show(server: LyingDirectory, folder: Path) -> Result:
    """``mqenterprise show`` of a directory."""
    file = folder / "directory.yaml"
    file.write_text(settings_of(server).model_dump_json(include={"servers", "start_tls", "kind", "root", "bind"}))
    return CliRunner().invoke(app, ["show", "--directory", str(file)])


def endless(size: int) -> Iterator[Operation]:
    """Pages of entries, each with the cookie of one more."""
    for number in itertools.count():
        yield entry(f"CN=site{number},CN=Sites,CN=Configuration,{ROOT}", cn=[b"x" * size], objectGUID=[next(GUIDS)])


@attack(
    Area.DIRECTORY,
    can="as a directory server, answer a search with pages that never end: of small entries, of large ones, of none",
    promised="a search has limits for its entries, its bytes and its empty pages, and its error names the limit",
)
@pytest.mark.parametrize(
    ("size", "page", "limit"), [(10, 500, "search_entries"), (30_000, 100, "search_bytes"), (0, 0, "empty pages")]
)
def test_a_directory_without_an_end_is_left(size: int, page: int, limit: str) -> None:
    entries = endless(size)

    def says(base: str, wanted: bytes, cookie: bytes) -> Iterable[Operation]:
        if not base:
            return [ROOT_DSE, done()]
        return [*itertools.islice(entries, page), done(b"more")]

    with LyingDirectory(says) as server:
        connection = LdapConnection(settings_of(server, search_entries=3_000, search_bytes=20 << 20))
        found = 0
        with pytest.raises(DirectoryError, match=limit):
            for _ in connection.search(ROOT, "(objectClass=site)"):
                found += 1
        assert found <= 3_000
        assert size * found <= 20 << 20


@attack(
    Area.DIRECTORY,
    can="as a directory server, send entries at impossible places, without their attributes, and with values of wrong "
    "types",
    promised="each such entry is left out with the reason; all others are listed",
)
def test_impossible_entries_hide_no_others(tmp_path: Path) -> None:
    sites = f"CN=Sites,CN=Configuration,{ROOT}"

    def says(base: str, wanted: bytes, cookie: bytes) -> Iterable[Operation]:
        if not base:
            return [ROOT_DSE, done()]
        found = [entry("", cn=[b"x"]), entry("CN=x"), entry("\\", objectGUID=[b"short"], mSMQCost=[b"\xff" * 5_000])]
        if b"mSMQSiteLink" in wanted:
            found.append(entry(f"CN=l,{sites}", mSMQSite1=[b"\xff\xfe"], mSMQSite2=[b"CN="], mSMQCost=[b"9" * 5_000]))
        elif b"mSMQQueue" in wanted:
            found.append(entry(f"CN=q,{ROOT}", mSMQQueueNameExt=[b"\xff"], mSMQQueueType=[b""], mSMQQuota=[b"-"]))
        elif b"site" in wanted:
            found.append(entry(f"CN=Honest,{sites}", cn=[b"Honest"], objectGUID=[b"g" * 16]))
        return [*found, done()]

    with LyingDirectory(says) as server:
        shown = show(server, tmp_path)
        assert shown.exit_code == 0, shown.output
        assert "Honest" in shown.stdout
        assert "is not where an object of Message Queuing can be" in shown.stderr
        with EnterpriseDirectory(settings_of(server)) as directory:
            assert [site.name for site in directory.sites.list() if site.identifier == b"g" * 16] == ["Honest"]
            assert list(directory.routing_links.list()) == []
            assert [queue for queue in directory.queues.list() if queue.identifier is not None] == []
            list(directory.queue_managers.list())
            list(directory.users.list())
            assert directory.half_written()


@attack(
    Area.DIRECTORY,
    can="as a directory server, refer each search to another server, with references between the entries as well",
    promised="no reference is followed: the other server hears nothing",
)
def test_referrals_lead_nowhere(tmp_path: Path) -> None:
    heard: list[str] = []

    def elsewhere(base: str, wanted: bytes, cookie: bytes) -> Iterable[Operation]:
        heard.append(base)
        return [done()]

    with LyingDirectory(elsewhere) as other:

        def says(base: str, wanted: bytes, cookie: bytes) -> Iterable[Operation]:
            if not base:
                return [ROOT_DSE, done()]
            return [done(code=10, referral=f"{other.url}/{base}")]

        with LyingDirectory(says) as server:
            shown = show(server, tmp_path)
        assert shown.exit_code == 1
        assert "kept by another server (referral)" in shown.stderr
        assert heard == []


@attack(
    Area.DIRECTORY,
    can="as a directory server, put groups into each other in a circle, or a user into groups without an end",
    promised="each group counts once, and a user with too many groups has none of them",
)
def test_groups_in_a_circle_end() -> None:
    user, groups = f"CN=u,{ROOT}", [f"CN=g{number},{ROOT}" for number in range(3)]
    sid = bytes.fromhex("010500000000000515000000") + bytes(16)

    def circle(base: str, wanted: bytes, cookie: bytes) -> Iterable[Operation]:
        if not base:
            return [ROOT_DSE, done()]
        named = [dn for dn in groups if dn.casefold() == base.casefold()]
        if named:
            place = groups.index(named[0])
            following = groups[(place + 1) % 3].encode()
            return [entry(named[0], memberOf=[following], objectSid=[sid[:-1] + b"%d" % place]), done()]
        if b"objectSid" in wanted:
            return [entry(user, memberOf=[groups[0].encode()], objectSid=[sid]), done()]
        wrong = {"memberOf": [groups[0].encode(), b"\xff"], "objectSid": [b"no SID"]}
        return [entry(groups[2], **wrong), entry(user, **wrong), done()]

    with LyingDirectory(circle) as server:
        connection = LdapConnection(settings_of(server))
        assert len(groups_of(connection, sid)) == 2

    endless_names = (f"CN=n{number},{ROOT}".encode() for number in itertools.count())

    def many(base: str, wanted: bytes, cookie: bytes) -> Iterable[Operation]:
        if not base:
            return [ROOT_DSE, done()]
        return [entry(user, memberOf=itertools.islice(endless_names, 20_000), objectSid=[sid]), done()]

    with LyingDirectory(many) as server, pytest.raises(ConstraintViolated, match="in more than 10,000 groups"):
        groups_of(LdapConnection(settings_of(server)), sid)


@attack(
    Area.DIRECTORY,
    can="as a directory server, report changes in bytes that are no report, and of objects with impossible identifiers",
    promised="the node goes on to listen, and hears of the next change",
)
def test_malformed_reports_of_changes_end_no_watch() -> None:
    refreshed = element(INTERMEDIATE, element(0x80, b"1.3.6.1.4.1.4203.1.9.1.4") + element(0x81, element(0xA1, b"")))
    dn, guid = f"CN=q,{ROOT}", b"g" * 16
    state = element(SEQUENCE, integer(2, ENUMERATED) + octets(guid))
    malformed = [b"\x30\x7f\x00", b"\x30\x00"]

    def says(base: str, wanted: bytes, cookie: bytes) -> Iterable[Operation]:
        if not base:
            yield from (ROOT_DSE, done())
            return
        yield refreshed, ()
        yield entry(dn, objectGUID=[b"short"])[0], [(SYNC_STATE, False, state)]
        if malformed:
            yield entry(dn, objectGUID=[guid])[0], [(SYNC_STATE, False, malformed.pop())]
        else:
            yield entry(dn, objectGUID=[guid])[0], [(SYNC_STATE, False, state)]

    told: list[Changed] = []
    with LyingDirectory(says) as server:
        watcher = Watcher(LdapConnection(settings_of(server, retry_after=0)), told.append, retry=0.01)
        watcher.start()
        try:
            wait_until(lambda: any(change.identifier == guid for change in told), 30, "the next change is heard")
        finally:
            watcher.stop(30)


@attack(
    Area.DIRECTORY,
    can="as a directory server, or in its place before it shows a certificate, answer the first request without an end",
    promised="whoever connects gives up in time",
)
def test_an_endless_answer_to_the_first_request_is_left() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with suppress(OSError):
                taken, _ = listener.accept()
                with taken:
                    taken.recv(65_536)
                    taken.sendall(b"\x30\x84\x7f\xff\xff\xff\x02\x01\x01\x78\x84\x7f\xff\xff\x00")
                    while True:
                        taken.sendall(bytes(100))
                        paused.wait(0.05)

        paused = threading.Event()
        threading.Thread(target=answer, daemon=True).start()
        url = f"ldap://127.0.0.1:{listener.getsockname()[1]}"
        given = {"servers": (url,), "bind": "anonymous", "root": ROOT, "connect_timeout": 1, "operation_timeout": 1}
        with pytest.raises(DirectoryUnavailable):
            LdapConnection(DirectorySettings.model_validate(given)).read("")
