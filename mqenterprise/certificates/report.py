"""The report on a registered certificate: one row, and whether it is due to be renewed."""

from datetime import UTC, datetime
from typing import Any, Final

from mqenterprise.certificates.registry import Registered, fingerprint_of
from qmnode.structures.guid import guid_to_text

DAY: Final = 86_400


def row_of(registered: Registered, now: float, ahead: int) -> dict[str, Any]:
    """A certificate at ``now``; due when it expires within ``ahead`` days."""
    certificate = registered.certificate
    due_from = registered.due_from(ahead * DAY)
    return {
        "user": registered.user,
        "fingerprint": fingerprint_of(registered),
        "identifier": guid_to_text(registered.identifier),
        "digest": registered.digest.hex(),
        "subject_key": None if certificate is None else f"RSA {certificate.public_key.key_size}",
        "not_before": None if certificate is None else _date(certificate.not_before),
        "not_after": None if certificate is None else _date(certificate.not_after),
        "state": _state(registered, now, due_from),
        "is_due": due_from is None or due_from <= now,
    }


def _state(registered: Registered, now: float, due_from: float | None) -> str:
    certificate = registered.certificate
    if certificate is None or due_from is None:
        return f"useless: {registered.fault}"
    if now < certificate.not_before:
        return "not valid yet"
    if now > certificate.not_after:
        return "expired"
    return "expires soon" if due_from <= now else "valid"


def _date(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
