"""Whether messages get from this host's node to others and back, and which way. Run by the node's own Python.

Arguments: the node's socket, and an action. ``check`` and ``prepare`` take the file of the node's certificate,
``reports`` on a node that sends, ``door=ADDRESS`` on a node that is to have an AMQP door, and in a workgroup
``direct=NAME``, by which others send to it. ``probe`` takes a JSON document: ``targets`` (hosts with the format names
of their queues), ``windows`` (hosts with the DNS names or addresses of Windows machines), ``names`` (identifiers with
hosts), ``addresses`` (with hosts) and ``direct`` (its own such name, or nothing). A probe is traced where there is a
directory, and asks for an acknowledgment of its arrival, so its way back is seen as well. Prints one JSON document.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import re
import socket
import ssl
import sys
import time
from pathlib import Path

import qmnode
from qmnode import Access, Acknowledgment, Message, MessageQueuingError
from qmnode.administration.access_control import RIGHTS, TRUSTEES, Change, changed, describe
from qmnode.local.remote import RemoteQueueManager
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.guid import Guid, guid_to_text

QUEUE = r".\private$\mqenterprise-probe"
ANSWERS = r".\private$\mqenterprise-probe-answers"
REPORTS = r".\mqenterprise-probe-reports"
"""Trace reports go to public queues only."""
SENDERS = "everyone", "anonymous"
"""Probes, acknowledgments and reports are not signed. By default, a queue that a user of the directory creates takes
messages of its owner only."""
OF_WINDOWS = "it is unreachable, or has no private queue mqenterprise-probe to which everyone may send"
PATIENCE = 60.0
PATIENCE_OF_DOOR = 10.0
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
FOLLOWED = 5.0
"""Seconds that the reports may come after the acknowledgment."""
NEXT_HOP = re.compile(r"<MESSAGE ID>([0-9A-F]{8})</MESSAGE ID>.*<NEXT HOP>(.*?)</NEXT HOP>", re.DOTALL)


def certified(file: str) -> str:
    """The queue manager that the node's certificate names; empty if it names none, has ended or cannot be read."""
    from cryptography import x509

    from qmnode.security.tls import queue_manager_in

    try:
        certificate = x509.load_pem_x509_certificate(Path(file).read_bytes())
    except (OSError, ValueError):
        return ""
    machine = queue_manager_in(certificate)
    ended = certificate.not_valid_after_utc.timestamp() < time.time()
    return "" if machine is None or ended else guid_to_text(machine)


def door_fault(address: str, port: int, certificate: str, name: str) -> str:
    """Look at the AMQP door as its clients do; return the fault, empty if there is none."""
    if not port:
        return "its AMQP door is closed: the node's log says why"
    context = ssl.create_default_context(cafile=str(Path(certificate).with_name("ca.pem")))
    context.load_default_certs()
    try:
        with socket.create_connection((address or "127.0.0.1", port), PATIENCE_OF_DOOR) as plain:
            plain.settimeout(PATIENCE_OF_DOOR)
            with context.wrap_socket(plain, server_hostname=name) as door:
                door.sendall(SASL_HEADER)
                answer = door.recv(len(SASL_HEADER))
    except OSError as error:
        return f"its AMQP door at port {port} cannot be used: {error}"
    return "" if answer == SASL_HEADER else f"what listens at port {port} does not speak AMQP 1.0"


async def prepare(
    path: str, names: list[str], certificate: str, door: str | None, direct: str | None, *, make: bool
) -> dict:
    """The queues to which probes go and come back, and the identity of this node."""
    async with qmnode.connect(path) as node:
        missing = [name for name in names if not await exists(node, name)]
        for name in missing if make else ():
            await node.create_queue(name, label="Probes of mqenterprise")
        there = names if make else [name for name in names if name not in missing]
        opened = [await open_to_senders(node, name, make=make) for name in there]
        found = {"changed": bool(missing) or any(opened), "missing": missing}
        found["identifier"] = guid_to_text(Guid(node.identifier))
        status = await node.status()
        found["tls_mode"] = getattr(status, "tls_mode", "")
        found["plain_peers"] = list(getattr(status, "plain_peers", ()))
        found["amqp_port"] = getattr(status, "amqp_port", 0)
        found["bridges"] = [
            {"name": bridge.name, "connected": bridge.connected, "reason": bridge.reason}
            for bridge in getattr(status, "bridges", ())
        ]
        found["door_fault"] = ""
        if door is not None:
            name = node.computer_name.lower()
            found["door_fault"] = await asyncio.to_thread(door_fault, door, found["amqp_port"], certificate, name)
        found["certificate"] = certified(certificate) if found["tls_mode"] else ""
        if direct is not None:
            found["format_name"] = f"DIRECT=OS:{direct}{QUEUE[1:]}"
        elif make or QUEUE not in missing:
            number = (await node.queue(QUEUE)).private_queue_number
            found["format_name"] = f"PRIVATE={found['identifier']}\\{number:08x}"
        return found


async def open_to_senders(node: RemoteQueueManager, name: str, *, make: bool) -> bool:
    """Let SENDERS send to a queue; whether one of them could not."""
    security = await node.queue_security(name)
    access = describe(security)
    send = RIGHTS["send-message"]
    may = {rule.name for rule in access.rules if rule.allows and rule.mask & send}
    closed_to = [] if access.unrestricted else [who for who in SENDERS if who not in may]
    for who in closed_to:
        security = changed(security, Change.ALLOW, TRUSTEES[who], send)
    if closed_to and make:
        await node.set_queue(name, security=security)
    return bool(closed_to)


async def exists(node: RemoteQueueManager, name: str) -> bool:
    try:
        await node.queue(name)
    except MessageQueuingError:
        return False
    return True


def direct_name(host: str) -> str:
    """The queue for probes of a host, by its DNS name or its address."""
    try:
        return f"DIRECT=TCP:{ipaddress.ip_address(host)}{QUEUE[1:]}"
    except ValueError:
        return f"DIRECT=OS:{host}{QUEUE[1:]}"


class Probes:
    """Those under way, and what is heard of them."""

    def __init__(self, asked: dict) -> None:
        self.names, self.addresses, self.direct = asked["names"], asked["addresses"], asked["direct"]
        self.windows = {host: direct_name(name) for host, name in asked.get("windows", {}).items()}
        self.targets = asked["targets"] | self.windows
        self.began: dict[bytes, float] = {}
        self.hosts: dict[bytes, str] = {}
        self.hops: dict[bytes, dict[str, str]] = {}
        """For each probe, who sent it on to whom."""
        self.found: dict[str, dict] = {}

    async def send(self, node: RemoteQueueManager) -> None:
        """One to each target."""
        number = (await node.queue(ANSWERS)).private_queue_number
        back = f"PRIVATE={guid_to_text(Guid(node.identifier))}\\{number:08x}"
        traced = {}
        if self.direct:
            back = f"DIRECT=OS:{self.direct}{ANSWERS[1:]}"
        else:
            reports = (await node.queue(REPORTS)).identifier
            traced = {"tracing_requested": True, "tracing_queue_identifier": reports}
        for host, name in self.targets.items():
            message = Message(
                b"probe",
                label="probe",
                time_to_reach_queue=int(PATIENCE),
                time_to_be_received=int(PATIENCE),
                acknowledgements_requested=Acknowledgment.FULL_REACH_QUEUE,
                administration_queue_format_name=back,
                **({} if host in self.windows else traced),
            )
            began = time.monotonic()
            async with await node.open_queue(name, Access.SEND) as out:
                sent = await out.send(message)
            self.began[sent], self.hosts[sent], self.hops[sent] = began, host, {}
            why = f"no acknowledgment within {PATIENCE:.0f} s: "
            why += OF_WINDOWS if host in self.windows else "the message waits where it cannot go on"
            self.found[host] = {"seconds": None, "why": why, "path": []}

    async def hear(self, answers: qmnode.QueueApi) -> None:
        """Acknowledgments, until each probe has one; older ones are passed over."""
        missing = set(self.began)
        while missing:
            answer = await answers.receive(timeout=PATIENCE)
            sent = answer.correlation_identifier
            if sent not in missing:
                continue
            missing.discard(sent)
            found = self.found[self.hosts[sent]]
            if answer.message_class == MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE:
                found |= {"seconds": round(time.monotonic() - self.began[sent], 3), "why": ""}
            else:
                found["why"] = f"refused with {MessageClass(answer.message_class).name}"

    async def follow(self, reports: qmnode.QueueApi) -> None:
        """Reports, until the way of each probe that arrived is known to its end."""
        traced = {sent: host for sent, host in self.hosts.items() if host not in self.windows}
        while any(self.path(sent)[-1] != host for sent, host in traced.items()):
            report = await reports.receive(timeout=PATIENCE)
            heard = NEXT_HOP.search(report.body.decode("utf-16-le", "replace"))
            for sent in self.hosts if heard else ():
                if int.from_bytes(sent[16:], "little") == int(heard[1], 16):
                    reporter = guid_to_text(report.source_machine_identifier).lower()
                    self.hops[sent][self.names.get(reporter, reporter)] = self.addresses.get(heard[2], heard[2])

    def path(self, sent: bytes) -> list[str]:
        """The way of a probe, as far as it was reported."""
        path = [self.names[guid_to_text(Guid(sent[:16])).lower()]]
        while path[-1] in self.hops[sent] and len(path) <= len(self.hops[sent]):
            path.append(self.hops[sent][path[-1]])
        return path


async def probe(path: str, asked: dict) -> dict:
    """Seconds until the acknowledgment of each is here, and its way; or why there is none."""
    probes = Probes(asked)
    async with qmnode.connect(path) as node:
        answers = await node.open_queue(f"DIRECT=OS:{ANSWERS}")
        await answers.purge()
        if probes.direct:
            await probes.send(node)
            with contextlib.suppress(MessageQueuingError, TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await probes.hear(answers)
            return {"changed": False, "found": probes.found}
        reports = await node.open_queue(f"DIRECT=OS:{REPORTS}")
        await reports.purge()
        await probes.send(node)
        following = asyncio.ensure_future(probes.follow(reports))
        try:
            async with asyncio.timeout(PATIENCE):
                await probes.hear(answers)
            async with asyncio.timeout(FOLLOWED):
                await following
        except (MessageQueuingError, TimeoutError):
            pass  # probes that did not come back are reported
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await reports.purge()
    for sent, host in probes.hosts.items():
        if host not in probes.windows:
            probes.found[host]["path"] = probes.path(sent)
    return {"changed": False, "found": probes.found}


def main() -> None:
    """Check, prepare or probe, as the arguments say."""
    path, action, argument, *rest = sys.argv[1:]
    said = dict(word.split("=", 1) for word in rest if "=" in word)
    door, direct = said.get("door"), said.get("direct")
    names = [QUEUE, *([ANSWERS] if direct else [ANSWERS, REPORTS])] if "reports" in rest else [QUEUE]
    try:
        make = action == "prepare"
        work = (
            probe(path, json.loads(argument))
            if action == "probe"
            else prepare(path, names, argument, door, direct, make=make)
        )
        print(json.dumps(asyncio.run(work)))
    except (OSError, MessageQueuingError) as error:
        sys.exit(f"the node does not answer: {error}")


main()
