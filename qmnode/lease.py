"""The right of this process to be active for a queue manager that several hosts can run, and its end.

The lease is measured in boot time (CLOCK_BOOTTIME), which goes on while the process or the machine sleeps. The kernel
keeps it: a timer of the process sends it SIGKILL when the lease has run out, whether it runs, is stopped or waits for a
disk. So nothing is compared when an acknowledgment leaves: between a comparison and its write a process can be stopped
for an hour, and would then send. A process that is stopped is killed as it is, and never wakes.

A thread renews the lease, away from the messages. Somebody else decides whether: the cluster manager, which writes the
file of the lease. Without a file the lease covers pauses only. If the file is not renewed, or the event loop hangs for
as long as a lease lasts, the thread ends the process a little before the kernel would, and the log says why. The store
is not closed then: that would write.
"""

import asyncio
import ctypes
import math
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import structlog

from qmnode.errors import ConfigurationError, MessageQueuingError
from qmnode.settings.node import FailoverSettings
from qmnode.structures.error_codes import ErrorCode

log = structlog.get_logger(__name__)

LOST: Final = 75
"""The exit code of a node whose lease was not renewed (EX_TEMPFAIL)."""
_RENEWALS: Final = 10
"""Looks at the file while a lease lasts."""
_OPENING: Final = 60.0
"""Seconds for which the store may be opened, or closed: RocksDB lets no thread of Python run meanwhile."""
_ABSOLUTE: Final = 1
_LONGEST: Final = 4096
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class _Event(ctypes.Structure):
    """The layout of ``struct sigevent`` of the C library."""

    _fields_ = (
        ("value", ctypes.c_void_p), ("number", ctypes.c_int), ("notify", ctypes.c_int), ("rest", ctypes.c_byte * 48),
    )  # fmt: skip


class _Times(ctypes.Structure):
    """The layout of ``struct itimerspec`` of the C library."""

    _fields_ = (
        ("every_seconds", ctypes.c_long), ("every_rest", ctypes.c_long),
        ("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long),
    )  # fmt: skip


def boot_time() -> float:
    """Seconds since this machine was booted, with those in which it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class KernelTimer:
    """Has the kernel kill this process at a moment of boot time. Raises OSError if it has no such timers."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self._timer = ctypes.c_void_p()
        event = _Event(None, signal.SIGKILL, 0)
        self._call("timer_create", time.CLOCK_BOOTTIME, ctypes.byref(event), ctypes.byref(self._timer))

    def set(self, moment: float) -> None:
        """Kill at this moment; 0: never. The moment before no longer counts, even if this one has passed."""
        times = _Times(0, 0, int(moment), int(moment % 1 * 1e9))
        self._call("timer_settime", self._timer, _ABSOLUTE, ctypes.byref(times), None)

    def _call(self, name: str, *arguments: Any) -> None:
        if getattr(self._library, name)(*arguments) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


class Promise(NamedTuple):
    """The contents of the file of the lease."""

    until: float
    """In seconds of boot time."""
    boot: str
    standbys: tuple[str, ...]
    """A line of the cluster manager about each other host."""


def read_promise(path: Path, lease: float) -> Promise:
    """Read the file of the lease. Raises ValueError, with a sentence, if it gives no right to be active now."""
    try:
        with path.open(encoding="utf-8") as file:
            first, *others = file.read(_LONGEST).splitlines()
        boot, text = first.split()
        until = float(text)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise ValueError(f"{path} does not say 'BOOT-IDENTIFIER SECONDS' in its first line") from None
    now = boot_time()
    if not now < until:
        raise ValueError(f"{path} was not renewed for {now - until + lease:.1f} s")
    # The file may be older than this boot, on a disk.
    if until > now + lease + 1:
        raise ValueError(f"{path} promises {until - now:.0f} s, and failover.lease is {lease:g}")
    if (own := boot_identifier()) and boot != own:
        raise ValueError(f"{path} is of another boot of this machine")
    return Promise(until, boot, tuple(others))


def _lines(path: Path | None) -> tuple[str, ...]:
    """The lines about the standbys that an operator's checks left; none if nobody has checked them since the start."""
    try:
        with (path or Path("/dev/null")).open(encoding="utf-8", errors="replace") as file:
            return tuple(file.read(_LONGEST).splitlines())
    except OSError:
        return ()


def boot_identifier() -> str:
    """The identifier of this boot; empty where the service's sandbox hides it."""
    try:
        return _BOOT.read_text("ascii").strip()
    except OSError:
        return ""


def own_host(settings: FailoverSettings) -> str:
    """This host, as the settings spell it. Raises ConfigurationError if they do not have it."""
    own = socket.gethostname().partition(".")[0].casefold()
    for host in settings.hosts:
        if host.partition(".")[0].casefold() == own:
            return host
    raise ConfigurationError(f"failover.hosts has no {own!r}, which is this host: start the node on one of its hosts")


class Lease:
    """A lease that is renewed until it is closed, or until it ends the process."""

    def __init__(self, settings: FailoverSettings) -> None:
        """Raises MessageQueuingError if this host may not be active now, ConfigurationError if it never may."""
        self.host = own_host(settings)
        self._settings = settings
        if os.getpid() == 1:
            raise ConfigurationError(
                "failover.hosts: the kernel never kills the first process of a container, so no lease holds: start "
                "the node under an init (tini; in Kubernetes shareProcessNamespace: true)"
            )
        try:
            self._promise = self._ask()
        except ValueError as error:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE,
                f"{error}. The cluster manager starts this node where it may run, and renews its lease: do not start "
                "it by hand",
            ) from None
        try:
            self._timer = KernelTimer()
        except OSError as error:
            raise ConfigurationError(f"failover.hosts: this system has no timer of boot time: {error}") from None
        self._timer.set(self._promise.until)
        self._changing = threading.Lock()
        self._closed = threading.Event()
        self._turned = math.inf
        """When the event loop made its last turn, in boot time; infinite while nobody is served."""
        self._turning: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._renew, daemon=True, name="lease")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()
        self._timer.set(0)

    @property
    def boot(self) -> str:
        """The identifier of this boot, or an empty text."""
        return boot_identifier() or self._promise.boot

    def extend(self) -> None:
        """Let the store be opened or closed for longer than a lease lasts. Nobody is served then."""
        if self._turning is not None:
            self._turning.cancel()
        self._turned = math.inf
        self._set(self._promise._replace(until=max(self._promise.until, boot_time() + _OPENING)))

    def confirm(self) -> None:
        """End that, when the store is open. Raises MessageQueuingError if the node may not be active any more.

        From now on the lease is renewed only while the running event loop makes turns.
        """
        try:
            self._set(self._ask())
        except ValueError as error:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE, str(error)) from None
        self._turn()

    def state(self) -> dict[str, Any]:
        """The lease as ``NodeStatus.failover`` has it."""
        return {
            "lease": self._settings.lease,
            "lease_left": round(max(0.0, self._promise.until - boot_time()), 3),
            "renewed_by": str(self._settings.lease_file or ""),
            "standbys": list(self._promise.standbys),
        }

    def _ask(self) -> Promise:
        lease, path = self._settings.lease, self._settings.lease_file
        # The moment before the question, so that a pause behind it makes the lease shorter.
        if path is not None:
            return read_promise(path, lease)
        until = boot_time() + lease
        return Promise(until, "", _lines(self._settings.standbys))

    def _turn(self) -> None:
        self._turned = boot_time()
        pause = self._settings.lease / _RENEWALS
        self._turning = asyncio.get_running_loop().call_later(pause, self._turn)

    def _set(self, promise: Promise) -> None:
        with self._changing:
            self._promise = promise
            self._timer.set(promise.until)

    def _renew(self) -> None:
        pause = self._settings.lease / _RENEWALS
        reason = "it was not renewed in time"
        while not self._closed.wait(pause):
            hung = boot_time() - self._turned
            try:
                promise = self._ask()
            except ValueError as error:
                reason = str(error)
            else:
                if hung > self._settings.lease:
                    reason = f"the event loop has made no turn for {hung:.1f} s: it is in {_place()}"
                elif promise.until > self._promise.until:
                    self._set(promise)
            if self._promise.until - boot_time() < 2 * pause and not self._closed.is_set():
                log.critical("the lease has run out: the node ends without another word", reason=reason)
                os._exit(LOST)


def _place() -> str:
    """Where the main thread is."""
    main = threading.main_thread().ident
    frame = sys._current_frames().get(main) if main is not None else None
    return f"{frame.f_code.co_filename}, line {frame.f_lineno}" if frame is not None else "no known place"
