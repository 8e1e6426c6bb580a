"""Protection of a process that holds private keys: it leaves no core dump, and no other process reads its memory."""

import ctypes
import resource
from typing import Final

import structlog

_PR_SET_DUMPABLE: Final = 4

log = structlog.get_logger(__name__)


def forbid_core_dumps() -> None:
    """No core file of this process or its children, whatever the shell allowed: it would hold the keys in clear.

    Where the system can (Linux), no other process of this user may read this one's memory either (prctl(2)).
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    if prctl is not None and prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        log.warning("other processes of this user may read this one's memory", error=ctypes.get_errno())
