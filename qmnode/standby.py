"""Whether this host could take the node over now. The check also brings the programs of a start into memory."""

import ctypes
import importlib
import os
import time
from pathlib import Path
from typing import Final

from qmnode.errors import ConfigurationError, reason_of
from qmnode.lease import KernelTimer, own_host
from qmnode.settings.node import NodeSettings
from qmnode.version import program_version

_LOADED: Final = ("qmnode.service", "qmnode.outside", "qmnode.management.server")
_SOON: Final = 86_400.0
"""Seconds before its end from which a certificate counts as ended."""
_BLOCK: Final = 4096
_UNSYNCHRONISED: Final = 5
"""The state TIME_ERROR that ntp_adjtime(3) returns: nobody keeps the clock."""


def faults(settings: NodeSettings) -> list[str]:
    """Reasons why the node could not run here, as sentences without a period."""
    found = []
    try:
        own_host(settings.failover)
    except ConfigurationError as error:
        found.append(str(error))
    try:
        KernelTimer()
    except OSError as error:
        found.append(f"this system has no timer of boot time: {reason_of(error)}")
    if not settings.data.is_dir():
        found.append(f"there is no directory {settings.data} to mount the store on (setting data)")
    if settings.failover.device is not None and (fault := _device_fault(settings.failover.device)):
        found.append(fault)
    for what, file in _certificates(settings):
        if fault := _certificate_fault(file):
            found.append(f"{what}: {file} {fault}")
    for module in (*_LOADED, *(["proton"] if settings.amqp.enabled or settings.bridges else [])):
        try:
            importlib.import_module(module)
        except ImportError as error:
            found.append(f"{module} cannot be loaded: {error}")
    return found


def facts() -> str:
    """The version of the program, and whether the clock is synchronised."""
    clock = "clock synchronised" if _is_synchronised() else "clock not synchronised"
    return f"qmnode {program_version()}, {clock}"


def _device_fault(device: Path) -> str:
    """Read a block past the caches of this host, which may be older than what the active host wrote."""
    try:
        opened = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.posix_fadvise(opened, 0, _BLOCK, os.POSIX_FADV_DONTNEED)
            os.read(opened, _BLOCK)
        finally:
            os.close(opened)
    except OSError as error:
        return f"{device}, the device of the store, cannot be read: {error.strerror}"
    return ""


def _certificates(settings: NodeSettings) -> list[tuple[str, Path]]:
    found = []
    if settings.security.tls is not None:
        found.append(("security.tls.certificate", settings.security.tls.certificate))
    if settings.management.certificate is not None:
        found.append(("management.certificate", settings.management.certificate))
    return found


def _certificate_fault(file: Path) -> str:
    from cryptography import x509

    try:
        ends = x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc
    except OSError as error:
        return f"cannot be read: {reason_of(error)}"
    except ValueError:
        return "is no certificate in PEM"
    return f"ends on {ends:%Y-%m-%d %H:%M} UTC: renew it" if ends.timestamp() < time.time() + _SOON else ""


def _is_synchronised() -> bool:
    """Whether the kernel's clock is kept by somebody, as ``timedatectl`` shows it."""
    buffer = ctypes.create_string_buffer(512)  # struct timex, larger than it is anywhere; all zeros only reads
    state: int = ctypes.CDLL(None).ntp_adjtime(buffer)
    return 0 <= state < _UNSYNCHRONISED
