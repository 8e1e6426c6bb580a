"""JSON documents of a node's keys and certificates: names, states and times, never a secret."""

from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Self

from cryptography import x509
from pydantic import BaseModel, Field

from qmnode.management.context import Context
from qmnode.management.documents import time_or_none
from qmnode.security.key_stores import KeyPair, KeyPurpose, KeyState
from qmnode.security.service import KeyStoreStatus


class CertificateUse(StrEnum):
    """The connections that a certificate is for."""

    MANAGEMENT = "management"
    QUEUE_MANAGERS = "queue managers"


class KeyDocument(BaseModel):
    """A key pair that the node uses."""

    fingerprint: str
    purpose: KeyPurpose
    provider: str = Field(description="The cryptographic service provider")
    length: int = Field(description="Bits of its modulus")
    state: KeyState = Field(description="`next`: not published yet; `previous`: messages to it may still arrive")
    created: datetime | None
    published: datetime | None = Field(description="Since when the directory shows it, or when it began to")
    superseded: datetime | None = Field(description="Since when the directory shows the next one")

    @classmethod
    def of(cls, pair: KeyPair) -> Self:
        """Make the document from a pair."""
        return cls(
            fingerprint=pair.fingerprint,
            purpose=pair.purpose,
            provider=pair.provider,
            length=pair.modulus_length,
            state=pair.state,
            created=time_or_none(pair.created_time),
            published=time_or_none(pair.published_time or 0.0),
            superseded=time_or_none(pair.superseded_time or 0.0),
        )


class CertificateDocument(BaseModel):
    """A certificate of the node."""

    use: CertificateUse
    subject: str | None
    begins: datetime | None
    ends: datetime | None
    fault: str | None = Field(description="Why its file cannot be used")

    @classmethod
    def of(cls, use: CertificateUse, file: Path) -> Self:
        """Read the first certificate of a PEM file."""
        try:
            found = x509.load_pem_x509_certificate(file.read_bytes())
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "this is no PEM file of a certificate"
            return cls(use=use, subject=None, begins=None, ends=None, fault=f"{file}: {reason}")
        return cls(
            use=use,
            subject=found.subject.rfc4514_string()[:500],
            begins=found.not_valid_before_utc,
            ends=found.not_valid_after_utc,
            fault=None,
        )


class Keys(BaseModel):
    """The private keys of the node, as of the last reading of its key store: their names, never more."""

    version: int = Field(description="Of the key store's contents")
    fault: str | None = Field(description="Why the store could not be read; what was read before goes on serving")
    fingerprints: list[str] = Field(description="The keys in use")
    keys: list[KeyDocument] = Field(description="The same with their states and times")
    certificates: list[CertificateDocument] = Field(description="Those of the node itself")

    @classmethod
    def of(cls, status: KeyStoreStatus, context: Context) -> Self:
        """Make the document from the status of the key reader and the settings of the node. Reads files."""
        files = {
            CertificateUse.MANAGEMENT: context.settings.certificate,
            CertificateUse.QUEUE_MANAGERS: context.manager.transport_security.certificate,
        }
        return cls(
            version=status.version,
            fault=status.fault,
            fingerprints=list(status.fingerprints),
            keys=[KeyDocument.of(pair) for pair in status.pairs],
            certificates=[CertificateDocument.of(use, file) for use, file in files.items() if file is not None],
        )
