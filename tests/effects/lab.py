"""A declared enterprise with two running nodes: where every declared value is seen to hold, or not.

ONE is a routing server and a site gate and sends; TWO has the queues. All other machines only take connections and
close them: where a message goes is seen by who is called. Each row of :mod:`qmnode.objects.table` has objects of its
own, so that all rows are declared, changed and removed together, each time by one apply.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

import qmnode
from mqenterprise.directory.admission import SETTINGS_FILE, admit
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.topology.apply import Applied, apply_declared
from mqenterprise.topology.check import load
from mqenterprise.topology.declaration import machine_document
from mqenterprise.topology.ldap_target import LdapTarget
from qmnode.security.sender_identity import make_internal_certificate
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.guid import guid_to_text
from qmnode.structures.security_descriptor import EVERYONE, Acl, QueueAccess, SecurityDescriptor, allow
from tests.effects.binds import ANNE, BOB, Users
from tests.forwarding.enterprise import HURRIED
from tests.lab.addresses import free_alias
from tests.lab.narrow import NarrowLink
from tests.lab.nodes import NodeProcess
from tests.lab.waiting import until
from tests.management.conftest import OPERATOR, write_certificate, write_tokens
from tests.security.keys import private_key
from tests.topology.conftest import Silent

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from mqenterprise.directory.private_slapd import EmbeddedDirectory
    from qmnode.model.api import QueueInformation

PORT: Final = 1801
FAST: Final = 100_000_000.0
"""Bytes a second from ONE to TWO, unless a test wants a narrow link."""
ACCOUNT: Final = pwd.getpwuid(os.geteuid()).pw_name
"""The user that sends."""
LONG: Final = 86_400
RECEIVE: Final = 120


class Phase(IntEnum):
    """The three applies."""

    DECLARED = 0
    CHANGED = 1
    REMOVED = 2
    """The value is no longer declared: the default holds, or what the page says of such a value."""


class Peers:
    """Machines that take a connection and close it at once; counts who was called."""

    def __init__(self, names: Iterable[str]) -> None:
        self.calls: Counter[str] = Counter()
        self.addresses: dict[str, str] = {}
        self._sockets = []
        for name in names:
            address = free_alias([PORT], list(self.addresses.values()))
            listening = socket.create_server((address, PORT))
            self.addresses[name] = address
            self._sockets.append(listening)
            threading.Thread(target=self._take, args=(name, listening), daemon=True).start()

    def _take(self, name: str, listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                self.calls[name] += 1
                connection.close()

    def close(self) -> None:
        for listening in self._sockets:
            with suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()


class Link:
    """The way to TWO, in a loop of its own, as it outlives the loops of tests."""

    def __init__(self, source: str, target: str, taken: Collection[str]) -> None:
        self.narrow = NarrowLink(free_alias([PORT], taken), target, PORT, FAST, source)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.narrow.start(), self._loop).result(60)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.narrow.stop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


PEERS: Final = (
    "gate-b", "gate-c", "gate-d", "gate-e", "server-a", "server-b", "helper", "far", "far-gated", "mover", "named",
    "renamed", "near", "alien", "broker", "other-broker",
)  # fmt: skip


OPEN: Final = SecurityDescriptor(dacl=Acl.of(allow(EVERYONE, QueueAccess.MQSEC_QUEUE_GENERIC_ALL))).write()
"""A queue of a user whom the directory knows takes messages of nobody else by itself."""
LISTED: Final = "listed-a", "listed-b"
"""Queues that lists and aliases name."""
DESTINATIONS: Final = "far", "far-gated", "mover", "named", "near", "alien", "outsider"


class Lab:
    """The directory, the two nodes and the declaration."""

    def __init__(self, slapd: EmbeddedDirectory, folder: Path) -> None:
        self.folder = folder
        self.directory = EnterpriseDirectory(slapd.client_settings())
        self.target = LdapTarget(self.directory)
        self.users = Users(self.directory, self.directory.connection.settings)
        self.peers = Peers(PEERS)
        taken = list(self.peers.addresses.values())
        self.addresses = {"one": free_alias([PORT], taken)}
        self.addresses["two"] = free_alias([PORT], [*taken, self.addresses["one"]])
        self.link = Link(*self.addresses.values(), [*taken, *self.addresses.values()])
        self.keys = [folder / f"key{number}" for number in range(2)]
        for number, file in enumerate(self.keys):
            file.write_bytes(private_key(1024, number).to_der())
            file.chmod(0o600)
        self.phase: Phase | None = None
        self.prefix = ""
        """``private$\\`` while the private queues are looked at: each public queue of TWO has a twin."""
        self.applied = 0.0
        """When the last apply had ended, by the monotonic clock."""
        self.nodes: dict[str, NodeProcess] = {}
        self.given: dict[str, str] = {}
        """How each node reaches the directory."""

    def start(self) -> None:
        """Apply what is declared first, and let both nodes join."""
        self.enter(Phase.DECLARED)
        self.users.let_in()
        certificate, key = write_certificate(self.folder)
        tokens = write_tokens(self.folder)
        for name in ("one", "two"):
            given = self.folder / f"{name}-given"
            admit(self.directory, name, given, new=False)
            self.given[name] = (given / SETTINGS_FILE).read_text()
            signer = {"private_key": str(self.keys[0]), "certificate": str(self.folder / "certificate0.pem")}
            self.nodes[name] = NodeProcess(
                self.folder / name,
                computer_name=name.upper(),
                transport={"address": self.addresses[name]},
                transfer=HURRIED | {"send_insecure_nacks": True},
                directory={"name": "ldap", "settings": {"file": str(given / SETTINGS_FILE)}},
                quotas={"queue_manager_quota": 5000} if name == "one" else {},
                management={
                    "socket": str(self.folder / name / "management.sock"),
                    "listen": "127.0.0.1:0",
                    "tokens": str(tokens),
                    "certificate": str(certificate),
                    "private_key": str(key),
                },
                security={"signers": {ACCOUNT: signer}},
            )
        self._each(NodeProcess.start)

    @property
    def nodes_file(self) -> Path:
        """How an operator reaches the nodes now: each start has other ports."""
        machines = {}
        for name, node in self.nodes.items():
            lines = (json.loads(line) for line in node.said().splitlines() if line.startswith("{"))
            ports = [line["port"] for line in lines if line["event"] == "management API" and "port" in line]
            machines[name] = {"address": f"127.0.0.1:{ports[-1]}"}
        token = self.folder / "my.token"
        token.write_text(OPERATOR)
        token.chmod(0o600)
        file = self.folder / "nodes.yaml"
        file.write_text(json.dumps({"authority": "certificate.pem", "token_file": token.name, "machines": machines}))
        return file

    @property
    def directory_file(self) -> Path:
        """How an administrator reaches the directory."""
        settings = self.directory.connection.settings
        values = settings.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        file = self.folder / "directory.yaml"
        file.write_text(yaml.safe_dump(values))
        return file

    def restart(self, *, directory: bool) -> None:
        """Stop both nodes and start them again, with the directory or without it."""
        self._each(NodeProcess.stop)
        there = self.directory.connection.settings.servers[0]
        for name, text in self.given.items():
            file = self.folder / f"{name}-given" / SETTINGS_FILE
            file.write_text(text if directory else text.replace(there, "ldaps://127.0.0.1:1"))
        self._each(NodeProcess.start)

    def _each(self, work: Callable[[NodeProcess], object]) -> None:
        with ThreadPoolExecutor() as threads:
            list(threads.map(work, self.nodes.values()))

    def close(self) -> None:
        for node in self.nodes.values():
            if node.running:
                node.stop()
        self.link.close()
        self.peers.close()
        self.directory.close()

    @property
    def one(self) -> Any:
        """A connection to ONE, as a context manager."""
        return qmnode.connect(self.nodes["one"].socket)

    @property
    def two(self) -> Any:
        return qmnode.connect(self.nodes["two"].socket)

    # The declaration

    def enter(self, phase: Phase) -> None:
        """Apply the declaration of a phase, unless it is the present one."""
        if phase is not self.phase:
            self.apply(self.declaration(phase))
            self.phase = phase
        if self.nodes:
            self.bring_document(self.declaration(phase))

    def bring_document(self, declaration: dict[str, Any]) -> None:
        """Make the document of TWO true, as the roll-out does."""
        file = self.folder / "documented.yaml"
        file.write_text(yaml.safe_dump(declaration))
        document = machine_document(load(file).declaration, "two")

        async def bring() -> None:
            async with self.two as two:
                await two.operations.apply_document(document)

        asyncio.run(bring())

    def apply(self, declaration: dict[str, Any]) -> Applied:
        file = self.folder / "enterprise.yaml"
        file.write_text(yaml.safe_dump(declaration))
        done = apply_declared(load(file), self.target, Silent(), prune=False, patience=60)
        self.applied = time.monotonic()
        return done

    def certificate(self, number: int) -> str:
        """The certificate of a key, PEM; ONE signs with the first."""
        file = self.folder / f"certificate{number}.pem"
        if not file.exists():
            der = make_internal_certificate(private_key(1024, number), ACCOUNT, time.time() - 3600, time.time() + LONG)
            file.write_bytes(x509.load_der_x509_certificate(der).public_bytes(Encoding.PEM))
        return file.read_text()

    def declaration(self, phase: Phase) -> dict[str, Any]:
        """The whole enterprise; each value under test is in one place."""

        def now(declared: Any, changed: Any, **removed: Any) -> Any:
            return (declared, changed, removed.get("removed"))[phase]

        address = self.peers.addresses

        def machine(name: str, site: str, *roles: str, **more: Any) -> dict[str, Any]:
            known = {"name": name, "sites": [site], "dns_name": address.get(name), **more}
            if roles:
                known["roles"] = list(roles)
            return {key: value for key, value in known.items() if value is not None}

        machines = [
            machine(
                "one",
                "a",
                "routing_server",
                dns_name=self.addresses["one"],
                quota=now(3000, 2000),
                journal_quota=now(64, 300),
                version=now("7.1", "7.2"),
            ),
            machine(
                "two",
                "a",
                dns_name=self.link.narrow.address,
                addresses=now(["192.0.2.7"], ["192.0.2.8"]),
                out_routing_servers=now(["server-a"], ["one"]),
            ),
            machine("server-a", "a", "routing_server"),
            machine("server-b", "a", "routing_server"),
            machine("gate-b", "b", "routing_server"),
            machine("gate-c", "c", "routing_server"),
            machine("gate-d", "d", "routing_server"),
            machine("gate-e", "d", "routing_server"),
            machine("helper", "a"),
            machine("far", "b"),
            machine("far-gated", "d"),
            machine("mover", now("a", "b", removed="c")),
            machine("named", "a", dns_name=address[now("named", "renamed", removed="renamed")]),
            machine("near", "a", in_routing_servers=now(["server-a"], ["server-b"])),
            {"name": "alien", "dns_name": address["alien"]}
            | now(
                {"foreign": True, "foreign_sites": ["mainframe"]},
                {"foreign": False, "sites": ["a"]},
                removed={"sites": ["a"]},
            ),
            {"name": "outsider", "foreign": True, "foreign_sites" if phase is Phase.DECLARED else "sites": ["harbour"]},
        ]
        sites, foreign = ["a", "b", "c", "d"], ["mainframe"]
        now(foreign, sites, removed=sites).append("harbour")
        listed = [{"to": "Everyone", "allow": ["get_properties"]}]
        listed += now(
            [{"to": ANNE, "allow": ["set_properties"]}], [{"to": BOB, "allow": ["set_properties"]}], removed=[]
        )
        of_two = [
            *(
                {"machine": "two", "name": name} | _given(**{name: value})
                for name, value in {
                    "label": now("first", "second"),
                    "type": now("11111111-2222-3333-4444-555555555555", "66666666-2222-3333-4444-555555555555"),
                    "journal": now(True, None),
                    "quota": now(8, 16),
                    "authenticate": now(True, None),
                    "privacy_level": now("body", "none"),
                    "base_priority": now(100, -100),
                    "access": now(
                        [{"to": "Everyone", "allow": ["get_properties"]}],
                        [{"to": "Everyone", "allow": ["send", "receive", "get_properties"]}],
                    ),
                }.items()
            ),
            {"machine": "two", "name": "transactional", "transactional": True},
            {"machine": "two", "name": "plain"},
            {"machine": "two", "name": "journal_quota", "journal": True} | _given(journal_quota=now(8, 64)),
        ]
        everybody = {"access": [{"to": "Everyone", "allow": ["generic_all"]}]}
        private = [
            ({} if queue["name"] == "access" else everybody) | queue | {"private": True}
            for queue in of_two
            if queue["name"] != "base_priority"
        ]
        private += [
            everybody | {"machine": "two", "name": name, "private": True} | beside | _given(**{name: value})
            for name, beside, value in (
                ("max_deliveries", {}, now(1, 2)),
                ("retry_pause", {}, now(700, 500)),
                ("retry_factor", {"retry_pause": 2}, now(100, 50)),
                ("retry_longest_pause", {"retry_pause": 3000}, now(700, 500)),
            )
        ]
        return {
            "enterprise": {"name": "Observed", "access": listed}
            | _given(default_time_to_live=now(1, 3600), weakened_security=now(True, False)),
            "sites": [{"name": name} | ({"access": listed} if name == "b" else {}) for name in sites],
            "foreign_sites": [{"name": name} for name in foreign],
            "routing_links": [
                {"sites": ["a", "b"], "cost": now(5, 1, removed=1), "site_gates": ["one", "gate-b"]}
                | _given(description=now("leased", "fibre")),
                {"sites": ["a", "c"], "cost": 1, "site_gates": ["one", "gate-c"]},
                {"sites": ["c", "b"], "cost": 1, "site_gates": ["gate-c"]},
                {"sites": ["a", "d"], "cost": 1, "site_gates": now(["gate-d"], ["gate-e"], removed=[])},
                *({"sites": ["a", name], "cost": 1, "site_gates": ["one"]} for name in ("mainframe", "harbour")),
            ],
            "machines": machines,
            "users": [
                {"name": ACCOUNT, "certificates": now([self.certificate(0)], [self.certificate(1)], removed=[])},
                *({"name": name} for name in (ANNE, BOB)),
            ],
            "queues": [
                *({"machine": name, "name": "orders"} for name in DESTINATIONS),
                *of_two,
                *private,
                {"machine": "two", "name": "signed", "authenticate": True},
                *({"machine": "two", "name": name} for name in LISTED),
            ],
            "bridges": [
                {"machine": "two", "name": "out", "direction": "out", "queue": "plain", "address": "orders"}
                | {"retry": 0.1, "longest_retry": 0.1, "peer": f"amqp://{address[broker]}:{PORT}"}
                for broker in now(["broker"], ["other-broker"], removed=[])
            ],
            "queue_aliases": [
                {"name": "moving", "format_name": rf"DIRECT=OS:two\{now(*LISTED, removed=LISTED[1])}"},
            ],
            "distribution_lists": [
                {"name": "staff", "members": now([rf"two\{LISTED[0]}"], [rf"two\{LISTED[1]}"], removed=[])},
                {"name": "aliased", "members": ["moving"]},
            ],
        }  # fmt: skip

    # What is seen

    def format_name(self, pathname: str) -> str:
        """The format name of a declared queue: a public one, or to the address of a machine."""
        if "private$" in pathname:
            return f"DIRECT=TCP:{self.link.narrow.address}\\{pathname.partition(chr(92))[2]}"
        found = self.directory.queues.find(pathname)
        assert found is not None and found.identifier is not None, pathname
        return f"PUBLIC={guid_to_text(found.identifier)}"

    async def at_two(self, name: str) -> QueueInformation:
        """A queue of TWO as it shows it itself; waits until it is there."""

        async def is_there() -> QueueInformation | None:
            async with self.two as two:
                with suppress(qmnode.MessageQueuingError):
                    return await two.queue(rf".\{self.prefix}{name}")
            return None

        return await until(is_there, f"TWO has the queue {name}")

    async def outcome(self, name: str, size: int = 10, **properties: Any) -> str:
        """What becomes of a message from ONE to a queue of TWO: its acknowledgment."""
        async with self.one as one:
            # By a direct name: TWO sends others through its routing servers.
            own = rf".\private$\admin-{name}{'-private' if self.prefix else ''}"
            with suppress(qmnode.MessageQueuingError):
                await one.create_queue(own, security=OPEN)
            sender = await one.open_queue(self.format_name(rf"two\{self.prefix}{name}"), qmnode.Access.SEND)
            await sender.send(
                qmnode.Message(
                    bytes(size), recoverable=True, acknowledgements_requested=5, time_to_reach_queue=LONG,
                    administration_queue_format_name=rf"DIRECT=TCP:{self.addresses['one']}{own.removeprefix('.')}",
                    **properties,
                )
            )  # fmt: skip
            answers = await one.open_queue(f"DIRECT=OS:{own}")
            return MessageClass((await answers.receive(timeout=RECEIVE)).message_class).name

    async def becomes(self, expected: str, name: str, size: int = 10, **properties: Any) -> None:
        """Wait until messages to a queue of TWO end like this."""
        await self.at_two(name)
        last = ""

        async def is_so() -> bool:
            nonlocal last
            last = await self.outcome(name, size, **properties)
            return last == expected

        try:
            await until(is_so, f"{expected} for {name}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it was {last}") from None

    async def goes(self, sender: str, destination: str, *expected: str) -> None:
        """Wait until a message of a node for a machine takes this way: all that it tries, in any order, are called."""
        name = self.format_name(rf"{destination}\orders")
        known = {address: machine for machine, address in (self.addresses | self.peers.addresses).items()}
        async with qmnode.connect(self.nodes[sender].socket) as manager:
            seen: list[str] = []

            async def is_so() -> bool:
                # Anew if it is gone: while the sender has the topology from before, it may go into a connector queue.
                async with await manager.open_queue(name, qmnode.Access.SEND) as out:
                    if not (await manager.queue(name)).message_count:
                        await out.send(qmnode.Message(b"on its way", time_to_reach_queue=LONG))
                    seen[:] = [known.get(hop, hop) for hop in (await manager.queue(name)).next_hops]
                return sorted(seen) == sorted(expected)

            try:
                await until(is_so, f"the way from {sender} to {destination} is {expected}")
            except AssertionError as error:
                raise AssertionError(f"{error}; it is {seen}") from None
        for machine in self.peers.addresses.keys() & set(expected):
            await until(self._called(machine, self.peers.calls[machine]), f"{machine} is called")

    async def connects(self, destination: str) -> None:
        """Wait until a message of ONE for a foreign system is in a connector queue."""
        name = self.format_name(rf"{destination}\orders")
        async with self.one as one:

            async def kept() -> int:
                return sum(queue.message_count for queue in await one.queues([qmnode.QueueType.CONNECTOR]))

            before = await kept()

            async def is_so() -> bool:
                out = await one.open_queue(name, qmnode.Access.SEND)
                await out.send(qmnode.Message(b"abroad", time_to_reach_queue=LONG))
                await out.close()
                return await kept() > before

            await until(is_so, f"{destination} is reached through a connector queue", pause=0.3)

    async def waits(self, destination: str) -> None:
        """Wait until ONE has no way for a message to a machine, and keeps it."""
        name = self.format_name(rf"{destination}\orders")
        async with self.one as one:

            async def is_so() -> bool:
                out = await one.open_queue(name, qmnode.Access.SEND)
                await out.send(qmnode.Message(b"kept", time_to_reach_queue=LONG))
                await out.close()
                queue = await one.queue(name)
                return queue.message_count > 0 and not queue.next_hops

            await until(is_so, f"there is no way to {destination}", pause=0.3)

    def _called(self, machine: str, before: int) -> Any:
        async def called() -> bool:
            return self.peers.calls[machine] > before

        return called


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
