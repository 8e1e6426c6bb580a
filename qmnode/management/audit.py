"""The audit log: an entry for each change and attempt, with caller, object, time, outcome. Never bodies or secrets."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from qmnode.log_limit import LogLimit
from qmnode.settings.node import ConfigurationError
from qmnode.shares import block_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from qmnode.management.tokens import Caller

log = structlog.get_logger(__name__)

UNKNOWN_LINES: Final = 10
"""Entries about requests without a valid token from one address block in a minute, and four times as many of all."""
_MINUTE: Final = 60.0
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class AuditLog:
    """A file to which JSON objects are appended, one a line; without a file they go to the log of the node."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._file = -1
        self.observe: Callable[[dict[str, Any], float, str], None] | None = None
        """Called with each entry, the moment when its operation began (monotonic, else 0), and its traceparent."""
        self._unknown = LogLimit(lines=UNKNOWN_LINES, interval=_MINUTE)
        self.reopen()

    def reopen(self) -> None:
        """Open the file, again if it was rotated. ConfigurationError if that cannot be."""
        if self.path is None:
            return
        try:
            opened = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigurationError(f"{self.path}: the audit log cannot be written: {error.strerror}") from error
        self.close()
        self._file = opened

    def write(self, entry: dict[str, Any], began: float = 0.0, traceparent: str = "") -> None:
        """Write down one change."""
        if self.observe is not None:
            self.observe(entry, began, traceparent)
        if self._file < 0:
            log.info("changed", **entry)
            return
        try:
            # In ASCII: nothing that a caller named can end a line, or speak to the terminal of who reads it.
            os.write(self._file, json.dumps(entry).encode() + b"\n")
        except OSError as error:
            # The change has been made: it must be known somewhere.
            log.error("the audit log cannot be written", reason=str(error), **entry)

    def write_unknown(self, entry: dict[str, Any], address: str) -> None:
        """Write down an attempt of an unknown caller, unless there were many: nobody fills the disk without a token.

        The next entry has the number of those that were left out (``left_out_before``).
        """
        line: dict[str, Any] = {"event": "unknown caller", "address": block_of(address)}
        try:
            self._unknown(None, "info", line)
        except structlog.DropEvent:
            return
        left_out = line.get("left_out_before")
        self.write(entry if left_out is None else entry | {"left_out_before": left_out})

    def close(self) -> None:
        """Close the file of the log; later entries are lost."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def audit_entry(
    *,
    who: str | None,
    channel: str,
    action: str,
    target: dict[str, str],
    details: dict[str, Any],
    outcome: str,
    problem: str | None,
) -> dict[str, Any]:
    """Fields of every entry; the time is now."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "who": who,
        "channel": channel,
        "action": action,
        "target": target,
        "details": details,
        "outcome": outcome,
        "problem": problem,
    }


class AuditMiddleware:
    """Writes an entry when the answer to a request that may change something begins."""

    def __init__(self, app: ASGIApp, audit_log: AuditLog) -> None:
        self.app = app
        self.audit_log = audit_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http" or scope["method"] in SAFE_METHODS:
            await self.app(scope, receive, send)
            return
        answered, began = False, time.monotonic()

        async def answer(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start" and not answered:
                answered = True
                self._write(scope, message["status"], began)
            await send(message)

        try:
            await self.app(scope, receive, answer)
        finally:
            if not answered:
                self._write(scope, 0, began)

    def _write(self, scope: Scope, status: int, began: float) -> None:
        entry = _entry(scope, status)
        if scope.get("state", {}).get("caller") is None:
            self.audit_log.write_unknown(entry, str(entry["from"]))
        else:
            self.audit_log.write(entry, began, _traceparent(scope) if self.audit_log.observe is not None else "")


def _traceparent(scope: Scope) -> str:
    """The trace context of the caller (W3C Trace Context), or nothing."""
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"traceparent"), "")


def _entry(scope: Scope, status: int) -> dict[str, Any]:
    state = scope.get("state", {})
    caller: Caller | None = state.get("caller")
    route = scope.get("route")
    outcome = "done" if 200 <= status < 300 else "denied" if status in (401, 403) else "failed" if status else "aborted"
    client = scope.get("client")
    return audit_entry(
        who=caller.name if caller else None,
        channel=caller.channel if caller else "tcp",
        action=getattr(route, "name", None) or f"{scope['method']} {scope['path'][:200]}",
        target=scope.get("path_params", {}) | state.get("audit_target", {}),
        details=state.get("audit", {}),
        outcome=outcome,
        problem=state.get("problem"),
    ) | {"from": client[0] if client else None, "status": status}
