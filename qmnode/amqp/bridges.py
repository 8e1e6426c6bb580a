"""Bridges between queues of the node and AMQP 1.0 peers: begun, kept going, changed and stopped, with their state.

A bridge never stays down by itself. After an attempt has ended, by a cut, a refusal or a missing queue, the next
one follows after a wait. :mod:`qmnode.amqp.bridge_out`, :mod:`qmnode.amqp.bridge_in` and
:mod:`qmnode.amqp.bridge_exactly` carry the messages.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import ssl
import time
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from qmnode.amqp.bridge_exactly import carry_in_exactly, carry_out_exactly
from qmnode.amqp.bridge_in import carry_in
from qmnode.amqp.bridge_out import Uncertain, carry_out
from qmnode.amqp.client import AmqpClient, Login
from qmnode.amqp.client_links import PeerError
from qmnode.amqp.mapping import Place
from qmnode.errors import ConfigurationError, MessageQueuingError, reason_of
from qmnode.model.administration import BridgeInformation
from qmnode.security.tls import load_certificate
from qmnode.settings.bridges import BridgeSettings, SecretSettings

if TYPE_CHECKING:
    from qmnode.model.queue_manager import QueueManager

log = structlog.get_logger(__name__)

ENTRY_POINT_GROUP: Final = "qmnode.secrets"
"""An entry point is a function from the name of a secret and the store's settings to the secret's text."""
_STOPPING: Final = 10.0
"""Seconds after which a bridge that still runs is asked to stop again."""
_STEADY: Final = 10.0
"""Seconds of a connection after which the next wait is the shortest again."""


class Bridge:
    """One bridge, with its state and its attempts."""

    def __init__(self, name: str, settings: BridgeSettings, manager: QueueManager) -> None:
        self.name = name
        self.settings = settings
        self.manager = manager
        # Names in messages that leave are those that any machine can use.
        self.place = Place(lambda name: False, time.time, is_foreign=True)
        self.state = BridgeInformation(
            name, settings.direction, settings.queue, settings.peer, settings.address, since=time.time()
        )
        self.uncertain = Uncertain(time.time(), settings.window)
        self.doubtful = 0
        """The number of next messages of the peer that may have come before, whatever it says."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to carry messages."""
        self.manager.amqp.bridges[self.name] = self.state
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"bridge {self.name}")

    async def stop(self) -> None:
        """Stop: messages under way are where they came from."""
        if self._task is not None:
            while not self._task.done():  # a wait that ends in the same moment may swallow a cancellation
                self._task.cancel()
                await asyncio.wait({self._task}, timeout=_STOPPING)
        self.manager.amqp.bridges.pop(self.name, None)
        self.manager.troubles.pop(self._trouble, None)

    @property
    def _trouble(self) -> str:
        return f"bridge {self.name}"

    def connected(self) -> None:
        """The link is there: messages can be carried."""
        self.state.connected, self.state.since, self.state.reason = True, time.time(), ""
        self.manager.troubles.pop(self._trouble, None)
        log.info("a bridge is connected", bridge=self.name, peer=self.settings.peer, address=self.settings.address)

    def _failed(self, reason: str) -> None:
        state = self.state
        state.failures += 1
        if state.connected or not state.reason:
            state.since = time.time()
        if reason != state.reason:
            log.warning("a bridge is interrupted and tries again", bridge=self.name, reason=reason)
        state.connected, state.reason = False, reason
        self.manager.troubles[self._trouble] = f"{reason}. It tries again by itself"

    async def _run(self) -> None:
        wait = self.settings.retry
        while True:
            began = time.monotonic()
            try:
                await self._attempt()
            except (PeerError, MessageQueuingError, ConfigurationError) as error:
                self._failed(str(error))
            except TimeoutError:
                limit = self.settings.connect_timeout
                self._failed(f"{self.settings.peer} does not accept connection and link within {limit:g} s")
            except OSError as error:
                plain = error.errno is not None and not isinstance(error, ssl.SSLError | socket.gaierror)
                self._failed(f"{self.settings.peer}: {os.strerror(error.errno or 0) if plain else reason_of(error)}")
            except Exception as error:
                log.exception("a bridge fails", bridge=self.name)
                self._failed(f"{type(error).__name__}: the log of the node has the details")
            if time.monotonic() - began > _STEADY:
                wait = self.settings.retry
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 (so that not all come at once)
            wait = min(wait * 2, self.settings.longest_retry)

    async def _attempt(self) -> None:
        settings = self.settings
        login = await asyncio.to_thread(login_of, settings)
        tls = await asyncio.to_thread(client_context, settings) if settings.uses_tls else None
        async with asyncio.timeout(settings.connect_timeout):
            client = await AmqpClient.connect(
                f"{self.manager.computer_name}:{self.name}", (settings.host, settings.port), tls, login,
                settings.virtual_host, settings.idle_timeout,
            )  # fmt: skip
        try:
            exactly = settings.guarantee == "exactly-once"
            match settings.direction:
                case "out":
                    await (carry_out_exactly if exactly else carry_out)(self, client)
                case "in":
                    await (carry_in_exactly if exactly else carry_in)(self, client)
        finally:
            await client.close()


class Bridges:
    """The bridges of a node."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager
        self._bridges: dict[str, Bridge] = {}
        self._changing = asyncio.Lock()

    async def apply(self, wanted: dict[str, BridgeSettings]) -> None:
        """Let exactly these run. Those that have not changed go on undisturbed."""
        async with self._changing:
            gone = [one for name, one in self._bridges.items() if wanted.get(name) != one.settings]
            for bridge in gone:
                await bridge.stop()
                del self._bridges[bridge.name]
            for name, settings in wanted.items():
                if name not in self._bridges:
                    self._bridges[name] = Bridge(name, settings, self._manager)
                    self._bridges[name].start()

    async def stop(self) -> None:
        """Stop all of them."""
        await self.apply({})


def login_of(settings: BridgeSettings) -> Login:
    """Return the credentials for the peer, read anew for each attempt. ConfigurationError."""
    if settings.password_file is not None:
        return Login("PLAIN", settings.user, _secret_in(settings.password_file))
    if settings.password_secret is not None:
        return Login("PLAIN", settings.user, _stored(settings.password_secret))
    return Login("EXTERNAL" if settings.certificate is not None else "ANONYMOUS")


def _secret_in(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"the password in {path} cannot be read: {reason}") from None


def _stored(secret: SecretSettings) -> str:
    installed: list[Any] = list(entry_points(group=ENTRY_POINT_GROUP))
    for entry_point in installed:
        if entry_point.name == secret.store:
            try:
                return str(entry_point.load()(secret.name, secret.settings))
            except ImportError:
                raise ConfigurationError(
                    f"the store of secrets {secret.store!r} is not complete: pip install 'qmnode[{secret.store}]'"
                ) from None
    known = ", ".join(sorted(one.name for one in installed)) or "none"
    raise ConfigurationError(f"no store of secrets named {secret.store!r} is installed (known: {known})")


def client_context(settings: BridgeSettings) -> ssl.SSLContext:
    """TLS to the peer, whose certificate and name are checked. ConfigurationError."""
    try:
        context = ssl.create_default_context(cafile=settings.authorities)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if settings.certificate is not None:
            load_certificate(context, settings.certificate, settings.private_key)
    except OSError as error:  # ssl.SSLError is one
        files = ", ".join(str(one) for one in (settings.authorities, settings.certificate, settings.private_key) if one)
        raise ConfigurationError(f"{files}: no certificates, or not a certificate and its key: {error}") from None
    return context
