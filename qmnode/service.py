"""The node as a service: from settings to running rooms, and back on SIGTERM. ``qmnode run`` is this."""

import asyncio
import contextlib
import gc
import importlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

import structlog

from qmnode.directory.membership import Membership, directory_of
from qmnode.directory.port import Directory, WorkgroupDirectory
from qmnode.disk_watch import DiskWatch
from qmnode.errors import MessageQueuingError, reason_of
from qmnode.event_loop import loop_name
from qmnode.lease import Lease
from qmnode.local.audited_calls import LocalChange
from qmnode.local.server import LocalServer
from qmnode.log_limit import LogLimit
from qmnode.management.audit import AuditLog, audit_entry
from qmnode.node import QueueManager
from qmnode.settings.node import ConfigurationError, LogSettings, NodeSettings, read_settings
from qmnode.settings.writers import why_others_write
from qmnode.storage.origin import copy_notice
from qmnode.storage.store import Store
from qmnode.storage.takeovers import note_in_ledger, take_over, violations
from qmnode.structures.error_codes import ErrorCode
from qmnode.version import program_version

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from starlette.types import ASGIApp

    from qmnode.administration.key_rotation import KeyRotations, Run
    from qmnode.administration.probes import Probes
    from qmnode.amqp.bridges import Bridges
    from qmnode.amqp.door import AmqpDoor
    from qmnode.dcerpc.server import Service as RpcService
    from qmnode.management.server import ManagementServer
    from qmnode.remote_management.qmmgmt_server import RemoteAction
    from qmnode.settings.bridges import BridgeSettings
    from qmnode.settings.probes import ProbeSettings

log = structlog.get_logger(__name__)

_without_record: Final = structlog.stdlib.ProcessorFormatter.remove_processors_meta
_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure_log(settings: LogSettings) -> None:
    """Structured lines on standard error; called again when the settings are reloaded."""
    renderer = (
        structlog.processors.JSONRenderer(ensure_ascii=False)
        if settings.format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    # Lines of libraries (asyncio, the HTTP server) have the same form.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(processors=[_without_record, renderer], foreign_pre_chain=shared)
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    structlog.configure(
        processors=[LogLimit(), *shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[settings.level]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


def notify_service_manager(state: str) -> None:
    """Notify systemd (sd_notify), if it asked for it: ``READY=1``, ``STOPPING=1``, ``RELOADING=1``."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
        try:
            out.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
        except OSError as error:
            log.warning("the service manager cannot be told", state=state, error=str(error))


async def _load_beside(module: str) -> None:
    """Import a module in a thread, which leaves the loop its turns: ten times more often than threads usually do."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(usual / 10)
    try:
        await asyncio.to_thread(importlib.import_module, module)
    finally:
        sys.setswitchinterval(usual)


async def _load_proton(wanted_by: str) -> None:
    try:
        await _load_beside("proton")
    except ImportError:
        raise ConfigurationError(
            f"{wanted_by} needs the extra amqp, which is compiled when it is installed: install a C compiler, then "
            "pip install 'qmnode[amqp]'"
        ) from None


def _nothing() -> None:
    pass


class Service:
    """A node with everything that its settings ask for. ``run`` returns when the node has stopped on request."""

    def __init__(
        self,
        settings: NodeSettings,
        configuration: Path | None = None,
        stopping: Callable[[], object] = _nothing,
    ) -> None:
        """``stopping`` is called when the node begins to stop."""
        self.settings = settings
        self.configuration = configuration
        self._stopping = stopping
        self._process = token_hex(16)
        self.manager: QueueManager
        self.audit_log: AuditLog
        self.management: ManagementServer
        self.door: AmqpDoor | None = None
        self.bridges: Bridges | None = None
        self.probes: Probes | None = None
        self.ready = False
        self._stop = asyncio.Event()
        self._reloading: set[asyncio.Task[None]] = set()

    async def run(self, started: Callable[[], object] = lambda: None) -> None:
        """Start, serve until ``stop`` or a signal, and stop: applications first, the store last.

        When the disk has failed and works again, all but the process starts anew.
        """
        with Lease(self.settings.failover) if self.settings.failover.hosts else contextlib.nullcontext() as lease:
            while await self._serve(started, lease):
                started = _nothing
            log.info("stopped")

    async def _serve(self, started: Callable[[], object], lease: Lease | None) -> bool:
        """One start and stop of the rooms. Whether to start again."""
        async with contextlib.AsyncExitStack() as rooms:
            directory = directory_of(self.settings)
            if directory is not None:
                rooms.push_async_callback(directory.close)
            if not (self.settings.data / "CURRENT").exists():
                log.warning(
                    "there is no message store yet: a new one is made; if there was one, look at the setting data",
                    data=str(self.settings.data),
                )
            opening = QueueManager.open(self.settings.data, self.settings, directory=directory)
            if lease is not None:
                lease.extend()
            self.manager = opening.begin()
            self.manager.ready = False
            if (notice := copy_notice(self.manager.store)) is not None:
                self.manager.troubles["store"] = notice
            self._look_who_writes_settings()
            rooms.push_async_callback(self.manager.close)
            if lease is not None:
                rooms.callback(lease.extend)
                lease.confirm()
                self._take_over(lease)
            self.audit_log = AuditLog(self.settings.management.audit_log)
            rooms.callback(self.audit_log.close)
            if self.manager.telemetry is not None:
                self.audit_log.observe = self.manager.telemetry.operation
            self._handle_signals()
            local = LocalServer(
                self.manager, self.settings.local, self._write_local_change, False, self.manager.principals
            )
            if directory is None:  # the directory may give the node another identifier
                await local.start()
            rooms.push_async_callback(local.stop)
            await _load_beside("qmnode.outside")
            await opening.complete(self.manager)
            if directory is not None:
                await self._join(directory, rooms)
                await local.start()
            local.complete(self.manager.operations)
            if lease is None:
                await self._start_management(directory, rooms)
            if self.settings.transport.enabled and not self.settings.hardened_security:
                await self._start_network()
                rooms.push_async_callback(self.manager.network.stop)
            if lease is not None:  # it takes longest to load, and no take-over waits for it
                await self._start_management(directory, rooms)
            await self._serve_remote_readers(directory, rooms)
            await self._open_amqp_door(rooms)
            await self._start_bridges(rooms)
            await self._start_probes(rooms)
            gc.freeze()  # A collection would hold the loop to look at modules and routes, which stay until the end.
            disk = DiskWatch(self.manager, self.settings.data, self.settings.storage)
            self.ready = self.manager.ready = True
            notify_service_manager("READY=1\nSTATUS=")
            log.info(
                "ready", computer_name=self.manager.computer_name, data=str(self.settings.data), pid=os.getpid(),
                event_loop=loop_name(),
            )  # fmt: skip
            started()
            resume = await self._until_stopped(disk)
            self.ready = False
            if not resume:
                await self._drain()
        return resume

    async def _until_stopped(self, disk: DiskWatch) -> bool:
        """Wait to be stopped. True: the store has failed instead, and can be opened again."""
        stopped, resumable = asyncio.create_task(self._stop.wait()), asyncio.create_task(disk.resumable())
        await asyncio.wait([stopped, resumable], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not self._stop.is_set():
            await resumable
            return True
        resumable.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await resumable
        return False

    async def _drain(self) -> None:
        notify_service_manager("STOPPING=1")
        log.info("stopping")
        self._stopping()
        from qmnode.delivery.network import drain

        left = await drain(self.manager.network, self.settings.transfer.drain_time)
        if left:
            log.info("messages wait for the next start", messages=left)

    def _take_over(self, lease: Lease) -> None:
        """Write the token of this process before anybody is served, and look for signs of two active hosts."""
        settings, store = self.settings.failover, self.manager.store
        assert isinstance(store, Store)
        token, before = take_over(
            store,
            settings.hosts,
            host=lease.host,
            boot=lease.boot,
            process=self._process,
            version=program_version(),
        )
        found: list[str] = []
        if settings.ledger is not None:
            try:
                found = violations(settings.ledger, lease.host, [*before, token])
                note_in_ledger(settings.ledger, token)
            except OSError as error:
                raise ConfigurationError(f"failover.ledger: {settings.ledger}: {reason_of(error)}") from error
        facts = {
            "host": lease.host,
            "hosts": list(settings.hosts),
            "since": token.time,
            "token": token.number,
            "before": before[-1].host if before else "",
            "violations": found,
        }
        self.manager.failover = lambda: facts | lease.state()
        log.info("active", **asdict(token))
        for sentence in found:
            self.manager.troubles["failover"] = sentence
            log.error("two hosts were active at once", reason=sentence)

    def _look_who_writes_settings(self) -> None:
        """Warn, in the log and the status, of settings that another user could change."""
        with contextlib.suppress(OSError):
            fault = why_others_write(self.configuration) if self.configuration is not None else ""
            if not fault:
                self.manager.troubles.pop("settings", None)
            elif self.manager.troubles.get("settings") != fault:
                self.manager.troubles["settings"] = fault
                log.warning("another user decides what this node does", reason=fault)

    def _write_local_change(self, change: LocalChange) -> None:
        """Changes through the socket of the applications are in the same audit log."""
        self.audit_log.write(
            audit_entry(
                who=f"uid:{change.user_id}",
                channel="local",
                action=change.action,
                target={"name": change.target},
                details={"properties": change.properties} if change.properties else {},
                outcome=change.outcome,
                problem=change.problem,
            )
        )

    def _beside_management(self, api: "ASGIApp") -> "ASGIApp":
        """Return the application of the TCP side of the management API, with the console if the settings ask for it."""
        if not self.settings.management.console:
            return api
        from qmnode.console.own_node import WithConsole

        return WithConsole(api, self.manager.computer_name, self.settings.management)

    def _rotations(self, directory: Directory | None) -> "KeyRotations | None":
        """Return the rotations of the node's keys through the management API, if the settings permit them."""
        settings = self.settings.management.key_rotation
        if not settings.enabled:
            return None
        from qmnode.administration.key_rotation import KeyRotations
        from qmnode.security.key_stores import KeyRotationOptions, RotatesKeys

        if not isinstance(directory, RotatesKeys):
            raise ConfigurationError(
                f"management.key_rotation.enabled: keys in the directory {self.settings.directory.name!r} cannot be "
                "rotated through the management API: set it to false"
            )
        options = KeyRotationOptions(
            computer_name=self.manager.computer_name,
            identifier=lambda: self.manager.identifier,
            data=self.settings.data,
            security=self.settings.security,
            settings=settings,
        )
        return KeyRotations(directory.key_rotation(options), self.manager.network.keys, self._write_rotation)

    def _write_rotation(self, run: "Run") -> None:
        """Write the end of a rotation to the audit log; its start is there as a request."""
        self.audit_log.write(
            audit_entry(
                who=run.who,
                channel=run.channel,
                action="key_rotation",
                target={},
                details={
                    "action": run.action.value,
                    "keys": [{"fingerprint": one.fingerprint, "state": one.state.value} for one in run.changes],
                },
                outcome="done" if run.fault is None else "failed",
                problem=run.fault,
            )
        )

    async def _start_management(self, directory: Directory | None, rooms: contextlib.AsyncExitStack) -> None:
        """Only now, and applications are served meanwhile: its libraries take longer to load than all the rest."""
        await _load_beside("qmnode.management.server")
        from qmnode.management.server import ManagementServer

        network = self.manager.network
        rotations = self._rotations(directory)
        self.management = ManagementServer(
            self.manager,
            self.settings.management,
            lambda: self.ready,
            network,
            network.keys,
            self.audit_log,
            self.settings.bodies.limits(),
            self.manager.operations,
            self.manager.principals,
            self._beside_management,
            rotations,
        )
        rooms.push_async_callback(self.management.stop)
        if rotations is not None:
            rooms.push_async_callback(rotations.stop)
        await self.management.start()
        if (telemetry := self.manager.telemetry) is not None:
            from qmnode.management.metrics import registry_of

            context = self.management.context

            async def families() -> "Iterable[Metric]":
                return (await registry_of(context)).collect()

            telemetry.start(families)

    async def _join(self, directory: Directory, rooms: contextlib.AsyncExitStack) -> None:
        """Settle who this node is before anybody can talk to it, and keep up with the directory from then on."""
        membership = Membership(directory, self.manager, self.settings)
        await membership.join()
        self.manager.opening.resolve_distribution_list = membership.resolve_distribution_list
        upkeep = asyncio.create_task(membership.run(), name="directory upkeep")

        async def leave() -> None:
            upkeep.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await upkeep

        rooms.push_async_callback(leave)

    async def _start_network(self) -> None:
        transport = self.settings.transport
        try:
            await self.manager.network.start()
        except OSError as error:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE,
                f"{transport.address or 'any address'}, ports {transport.port} and {transport.ping_port}: "
                f"{reason_of(error)}. "
                "Stop what listens there, or change transport.address",
            ) from error

    async def _serve_remote_readers(self, directory: Directory | None, rooms: contextlib.AsyncExitStack) -> None:
        settings = self.settings.remote_read
        if not settings.enabled and not settings.management:
            return
        from qmnode.dcerpc.authentication import acceptor_authentication
        from qmnode.remote_read.server import RemoteReadServer

        server = RemoteReadServer(
            self.manager,
            settings,
            directory or WorkgroupDirectory(),
            acceptor_authentication(settings),
            self.manager.principals,
            self._remote_management() if settings.management else {},
        )
        await server.start()
        rooms.push_async_callback(server.stop)

    def _remote_management(self) -> "dict[RpcService, str]":
        from qmnode.remote_management.qmmgmt import ANNOTATION
        from qmnode.remote_management.qmmgmt_server import QmmgmtServer

        assert self.manager.principals is not None
        return {QmmgmtServer(self.manager, self.manager.principals, self._write_remote_action).service(): ANNOTATION}

    def _write_remote_action(self, action: "RemoteAction") -> None:
        """Actions of administrators of other machines are in the same audit log."""
        self.audit_log.write(
            audit_entry(
                who=action.who,
                channel="qmmgmt",
                action=action.action,
                target={"name": action.target},
                details={},
                outcome=action.outcome,
                problem=action.problem,
            )
            | {"from": action.peer}
        )

    async def _open_amqp_door(self, rooms: contextlib.AsyncExitStack) -> None:
        if not self.settings.amqp.enabled:
            return
        await _load_proton("amqp.enabled")
        from qmnode.amqp.door import AmqpDoor

        assert self.manager.principals is not None
        self.door = AmqpDoor(self.manager, self.settings, self.manager.principals)
        await self.door.start()
        rooms.push_async_callback(self.door.stop)

    async def _start_bridges(self, rooms: contextlib.AsyncExitStack) -> None:
        """Also without any in the settings: a later version of these may have some."""
        rooms.push_async_callback(self._stop_bridges)
        await self.manager.operations.local_settings.run_with(self)

    async def _start_probes(self, rooms: contextlib.AsyncExitStack) -> None:
        """Also without any in the settings, if a later version of these may have some."""
        rooms.push_async_callback(self._stop_probes)
        await self._run_probes(self.settings.probes)

    async def _run_probes(self, settings: "Mapping[str, ProbeSettings]") -> None:
        """Let exactly these probes run."""
        if self.probes is not None:
            await self.probes.apply(settings)
        elif settings:
            from qmnode.administration.probes import Probes

            self.probes = Probes(self.manager, self.manager.principals)
            await self.probes.start(settings)

    async def _stop_probes(self) -> None:
        probes, self.probes = self.probes, None
        if probes is not None:
            await probes.stop()

    async def prepare_bridges(self) -> None:
        """Load what bridges need."""
        if self.bridges is None:
            await _load_proton("bridges")
            from qmnode.amqp.bridges import Bridges

            self.bridges = Bridges(self.manager)

    async def run_bridges(self, bridges: "Mapping[str, BridgeSettings]") -> None:
        """Let exactly these bridges run."""
        if bridges:
            await self.prepare_bridges()
        if self.bridges is not None:
            await self.bridges.apply(dict(bridges))

    async def _stop_bridges(self) -> None:
        await self.manager.operations.local_settings.run_with(None)
        bridges, self.bridges = self.bridges, None
        if bridges is not None:
            await bridges.stop()

    def stop(self) -> None:
        """Stop: let what is under way finish, close what is open, sync what is written."""
        self._stop.set()

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self.reload)

    def _reload_local_settings(self, settings: NodeSettings) -> None:
        local_settings = self.manager.operations.local_settings
        local_settings.take(settings)
        for what in (local_settings.bring_bridges(), self._run_probes(settings.probes)):
            task = asyncio.get_running_loop().create_task(what)
            self._reloading.add(task)
            task.add_done_callback(self._part_reloaded)

    def _part_reloaded(self, task: asyncio.Task[None]) -> None:
        self._reloading.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), ConfigurationError | MessageQueuingError):
            log.error("bridges or probes were not reloaded", reason=str(error))
        elif not task.cancelled():
            task.result()

    def reload(self) -> None:
        """Read the configuration again and take over what can change while the node runs: quotas, poison policy, log,
        addresses, bridges, probes.

        Tokens and certificate of the management API are read again, and its audit log is reopened; so are the private
        keys of the node and of its users, and the settings and files of TLS with other nodes.

        A configuration that cannot be used changes nothing.
        """
        if not self.ready:
            return  # it is starting with what it has just read, or stopping
        notify_service_manager("RELOADING=1")
        begun = time.time()
        try:
            fresh = read_settings(self.configuration)
        except ConfigurationError as error:
            log.error("the configuration was not reloaded", reason=str(error))
        else:
            configure_log(fresh.log)
            self._look_who_writes_settings()
            self.manager.apply_settings(fresh)
            self.management.reload()
            if self.door is not None:
                self.door.reload()
            self._reload_local_settings(fresh)
            self.manager.network.keys.read_soon()
            self.manager.signing.signers.forget()
            self.manager.principals.forget()
            complete = True
            if self.manager.network.running:
                complete = self.manager.network.peer_tls.reload(fresh.security.tls)
            taken = {"security": fresh.security.model_copy(update={"tls": self.settings.security.tls})}
            fixed = fresh.model_copy(update=taken)
            changed = [name for name in _FIXED if getattr(fixed, name) != getattr(self.settings, name)]
            self.manager.troubles.pop(_TROUBLE, None)
            if changed:
                log.warning("these settings change with a restart only", settings=changed)
                self.manager.troubles[_TROUBLE] = f"{', '.join(changed)} changed: restart the node for that"
            elif complete:
                self.manager.settings_read = begun
            log.info("reloaded")
        notify_service_manager("READY=1")


_TROUBLE: Final = "settings"
_FIXED: Final = (
    "data", "computer_name", "storage", "read_ahead", "local", "management", "directory",
    "transport", "session", "transfer", "security", "remote_read", "amqp", "hardened_security", "export", "failover",
    "tracing",
)  # fmt: skip
