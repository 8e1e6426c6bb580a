"""Where private keys are kept: the port, the store in a file, how that is encrypted, and stores that are installed.

The file store is one file of mode 0600, replaced as a whole; it is in clear, or encrypted with a passphrase through
scrypt into AES-256-GCM. All stores share one serialisation of key pairs.

Records of destroyed keys stay, without their private keys, so that a log line about an old message can still be
understood. A store has a version: a writer names the version that it read, so two writers never undo each other's step.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import fcntl
import json
import os
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Protocol, runtime_checkable

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from qmnode.security.errors import KeyStoreConflictError, KeyStoreError, KeyStoreUnavailableError
from qmnode.security.private_files import as_owner_of, read_private
from qmnode.security.rsa_keys import PrivateKey
from qmnode.settings.mistakes import faults_of

if TYPE_CHECKING:
    from qmnode.settings.node import KeyRotationSettings
    from qmnode.settings.security import SecuritySettings
    from qmnode.structures.guid import Guid


# ----------------------------------------------------------------------------------------------------------------------
# The key pairs of this queue manager, and which of them a message may have been encrypted to.
#
# The wire carries no key id (MS-MQQB 2.4.2), so while a rotation lasts several private keys may fit. The sent time says
# which are likely.


class KeyPurpose(enum.StrEnum):
    """The directory's list that holds a public key (MS-MQDMPR 3.1.1.1)."""

    ENCRYPTION = "encryption"
    """Keys that senders encrypt to: PublicEncryptionKeyList."""
    SIGNING = "signing"
    """Keys that verify signatures: PublicSigningKeyList."""


class KeyState(enum.StrEnum):
    """The life of a key pair."""

    NEXT = "next"
    """Made and not published yet. It decrypts already: the directory may show it before this node learns so."""
    CURRENT = "current"
    PREVIOUS = "previous"
    """Superseded; messages encrypted to it may still arrive."""
    RETIRED = "retired"
    """No longer used, and not destroyed yet."""
    DESTROYED = "destroyed"
    """Only the record is left."""


_DECRYPTS = frozenset({KeyState.NEXT, KeyState.CURRENT, KeyState.PREVIOUS})


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A key pair with its history. Times are seconds since 1970; a time that has not come is None."""

    provider: str
    """The name of the cryptographic service provider."""
    purpose: KeyPurpose
    state: KeyState
    fingerprint: str
    modulus_length: int
    created_time: float
    staged_time: float | None = None
    """When the key became the next one. A node that has read its key store since then decrypts with it."""
    published_time: float | None = None
    superseded_time: float | None = None
    """When the directory had the next key: from here on only caches and lagging replicas lead senders to this one."""
    destroyed_time: float | None = None
    private_key: PrivateKey | None = field(default=None, repr=False)
    """The private half; None once it was destroyed."""

    @classmethod
    def of(cls, private_key: PrivateKey, provider: str, purpose: KeyPurpose, state: KeyState, now: float) -> KeyPair:
        """A key pair made at ``now``."""
        return cls(
            provider=provider,
            purpose=purpose,
            state=state,
            fingerprint=private_key.fingerprint,
            modulus_length=private_key.modulus_length,
            created_time=now,
            staged_time=now,
            published_time=now if state is KeyState.CURRENT else None,
            private_key=private_key,
        )

    def superseded(self, now: float) -> KeyPair:
        """The same pair after another took its place in the directory."""
        return replace(self, state=KeyState.PREVIOUS, superseded_time=now)

    def destroyed(self, now: float) -> KeyPair:
        """The record of the pair without its private key."""
        return replace(self, state=KeyState.DESTROYED, destroyed_time=now, private_key=None)

    def may_have_served(self, sent_time: float, clock_skew: float, grace: float) -> bool:
        """Whether a sender may have encrypted to this key at ``sent_time``."""
        if sent_time < self.created_time - clock_skew:
            return False
        return self.superseded_time is None or sent_time <= self.superseded_time + grace + clock_skew

    def needed_until(
        self, settings: SecuritySettings, replication_delay: float, longest_time_to_reach_queue: float
    ) -> float | None:
        """When no message that is encrypted to this key can arrive any more; None while it is not superseded.

        A lagging replica shows the key for ``replication_delay`` seconds after the next one was published; a sender
        keeps what it read and the session key that it made for their lifetimes, and the message then has
        ``longest_time_to_reach_queue`` seconds to arrive.
        """
        if self.superseded_time is None:
            return None
        kept = (settings.public_key_lifetime + settings.symmetric_key_short_lifetime) / 1000
        return self.superseded_time + replication_delay + kept + longest_time_to_reach_queue + settings.clock_skew

    def distance(self, sent_time: float) -> float:
        """Seconds from ``sent_time`` to the time in which this key was the published one; 0 within it."""
        start = self.created_time if self.published_time is None else self.published_time
        if sent_time < start:
            return start - sent_time
        if self.superseded_time is not None and sent_time > self.superseded_time:
            return sent_time - self.superseded_time
        return 0.0


class KeyRing:
    """The usable key pairs of this node. Immutable: a rotation makes a new ring."""

    __slots__ = ("_pairs", "unavailable")

    def __init__(self, pairs: Iterable[KeyPair] = (), *, unavailable: str | None = None) -> None:
        self._pairs = tuple(pair for pair in pairs if pair.state in _DECRYPTS and pair.private_key is not None)
        self.unavailable = unavailable
        """Why the key store cannot be read at the moment; messages that no key here decrypts wait."""

    def current(self, provider: str, purpose: KeyPurpose) -> KeyPair | None:
        """The pair whose public key the directory holds."""
        return next((pair for pair in self._of(provider, purpose) if pair.state is KeyState.CURRENT), None)

    def candidates(self, provider: str, modulus_size: int, sent_time: float) -> list[KeyPair]:
        """The pairs that could decrypt a session key of ``modulus_size`` bytes, the likeliest first."""
        fitting = [
            pair for pair in self._of(provider, KeyPurpose.ENCRYPTION) if (pair.modulus_length + 7) // 8 == modulus_size
        ]
        return sorted(fitting, key=lambda pair: (pair.distance(sent_time), -pair.created_time))

    def fingerprints(self, provider: str) -> list[str]:
        """The names of the provider's keys that decrypt, for a log line."""
        return [pair.fingerprint for pair in self._of(provider, KeyPurpose.ENCRYPTION)]

    def __iter__(self) -> Iterator[KeyPair]:
        return iter(self._pairs)

    def _of(self, provider: str, purpose: KeyPurpose) -> list[KeyPair]:
        return [pair for pair in self._pairs if pair.provider == provider and pair.purpose is purpose]

    def __repr__(self) -> str:
        return f"<KeyRing of {len(self._pairs)} keys{'' if self.unavailable is None else ', unavailable'}>"


@dataclass(frozen=True, slots=True)
class KeyStoreContents:
    """All key pairs of one node, as of one version of its store. Version 0 is a store that does not exist yet."""

    version: int
    pairs: tuple[KeyPair, ...]


class KeyStore(Protocol):
    """Where a node's private keys are. Every call is bounded in time and raises only :class:`KeyStoreError`."""

    async def read(self) -> KeyStoreContents:
        """The contents. A store that nothing was written to is empty, with version 0."""

    async def replace(self, pairs: tuple[KeyPair, ...], *, expected_version: int) -> int:
        """Put these pairs in the place of all; returns the new version.

        Atomic: a reader, or a restart at any moment, finds the old contents or the new. Raises
        :class:`KeyStoreConflictError` when the version is no longer ``expected_version``.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStoreOptions:
    """The arguments for opening a key store."""

    settings: Mapping[str, str]
    """The store's own settings, as the node's configuration states them."""
    directory: Path
    """The folder of the node, for key stores in files."""
    identifier: Guid | None = None
    """QueueManager.Identifier, when it is settled already."""


LARGEST_STORE = 4 * 1024 * 1024
"""Bytes: more is no key store. A pair takes about 1 KiB."""


class _Record(BaseModel):
    """One pair. ``hide_input_in_errors``: a mistake must not print the key."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    provider: str = Field(max_length=256)
    purpose: KeyPurpose
    state: KeyState
    fingerprint: str = Field(max_length=64)
    modulus_length: int
    created_time: float
    staged_time: float | None = None
    published_time: float | None = None
    superseded_time: float | None = None
    destroyed_time: float | None = None
    private_key: str | None = Field(None, repr=False)

    def to_pair(self) -> KeyPair:
        key = None if self.private_key is None else PrivateKey.from_der(b64decode(self.private_key, validate=True))
        if key is not None and key.fingerprint != self.fingerprint:
            raise ValueError(f"the private key of {self.fingerprint} is another one, {key.fingerprint}")
        return KeyPair(**{**self.model_dump(), "private_key": key})

    @classmethod
    def of(cls, pair: KeyPair) -> _Record:
        key = None if pair.private_key is None else b64encode(pair.private_key.to_der()).decode()
        names = [name for name in cls.model_fields if name != "private_key"]
        return cls(**{name: getattr(pair, name) for name in names}, private_key=key)


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    format: Literal[1] = 1
    version: int = Field(ge=1)
    keys: list[_Record] = Field(max_length=1000)


def encode_contents(contents: KeyStoreContents) -> bytes:
    """The contents as bytes that only a key store may see."""
    document = _Document(version=contents.version, keys=[_Record.of(pair) for pair in contents.pairs])
    return json.dumps(document.model_dump(mode="json"), indent=1).encode()


def decode_contents(encoded: bytes, where: str) -> KeyStoreContents:
    """The contents from bytes. Raises :class:`KeyStoreError` that names ``where`` and repeats nothing of the bytes."""
    if len(encoded) > LARGEST_STORE:
        raise KeyStoreError(f"{where} has {len(encoded)} bytes, which is no key store")
    try:
        document = _Document.model_validate_json(encoded)
        return KeyStoreContents(document.version, tuple(record.to_pair() for record in document.keys))
    except ValidationError as error:
        faults = faults_of(error, 3)
    except (ValueError, UnsupportedAlgorithm) as error:
        faults = str(error)
    raise KeyStoreError(f"{where} cannot be read: {faults}") from None


PURPOSE: Final = b"qmnode key store 1"
"""The data that AES-GCM authenticates beside the contents: a file of another kind does not open."""
SCRYPT: Final = {"n": 1 << 15, "r": 8, "p": 1}
"""32 MiB and about 0.1 s for each guess."""
_LARGEST_SCRYPT: Final = {"n": 1 << 20, "r": 32, "p": 16}


class Sealing(Protocol):
    """Turns what a key store holds into what its file holds, and back. Calls may block; errors name ``where``."""

    protection: str
    """The protection of the file, in a word."""

    def seal(self, clear: bytes, where: str) -> bytes:
        """Encrypt the contents of a file. Raises :class:`KeyStoreError`."""

    def open(self, stored: bytes, where: str) -> bytes:
        """Decrypt the contents of a file. Raises :class:`KeyStoreError`."""


class NoSealing:
    """The file's permissions are all that protects the keys."""

    protection = "permissions"

    def seal(self, clear: bytes, where: str) -> bytes:
        """Return the contents unchanged."""
        return clear

    def open(self, stored: bytes, where: str) -> bytes:
        """Return the contents unchanged; KeyStoreError if they are encrypted."""
        if sealed_document(stored) is not None:
            raise KeyStoreError(f"{where} is encrypted: give its passphrase, or its key of KMS")
        return stored


class PassphraseSealing:
    """The passphrase is the first line of a file that only the node's user may read, and is read when it is needed."""

    protection = "passphrase"

    def __init__(self, passphrase: Path | str) -> None:
        self.__passphrase = passphrase

    def __reduce__(self) -> NoReturn:
        raise TypeError("a passphrase is not copied to another process")

    def seal(self, clear: bytes, where: str) -> bytes:
        """Encrypt with a fresh salt."""
        salt = os.urandom(16)
        return envelope(clear, self._derive(salt, SCRYPT), {"scrypt": SCRYPT, "salt": b64encode(salt).decode()})

    def open(self, stored: bytes, where: str) -> bytes:
        """Decrypt the contents. Those in clear are returned unchanged, and encrypted when they are next written."""
        sealed = sealed_document(stored)
        if sealed is None:
            return stored
        try:
            salt = b64decode(sealed["salt"], validate=True)
            cost = {name: int(sealed["scrypt"][name]) for name in SCRYPT}
            if any(not 0 < cost[name] <= limit for name, limit in _LARGEST_SCRYPT.items()):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise KeyStoreError(f"{where} is not an encrypted key store that a passphrase opens") from None
        return opened(sealed, self._derive(salt, cost), where, "the passphrase is wrong or the file altered")

    def _derive(self, salt: bytes, cost: dict[str, int]) -> bytes:
        passphrase = self.__passphrase
        secret = passphrase if isinstance(passphrase, str) else _read_passphrase(passphrase)
        return Scrypt(salt=salt, length=32, **cost).derive(secret.encode())


def _read_passphrase(path: Path) -> str:
    stored = read_private(path)
    if stored is None:
        raise KeyStoreError(f"{path} is not there: put the key store's passphrase into it, mode 0600")
    lines = stored.decode("utf-8", "replace").splitlines()
    if not lines or not lines[0]:
        raise KeyStoreError(f"{path} holds no passphrase")
    return lines[0]


def envelope(clear: bytes, key: bytes, how: dict[str, Any]) -> bytes:
    """An encrypted store as JSON, with how its key is found."""
    nonce = os.urandom(12)
    parts = {"nonce": nonce, "sealed": AESGCM(key).encrypt(nonce, clear, PURPOSE)}
    encoded = {name: b64encode(value).decode() for name, value in parts.items()}
    return json.dumps({"format": 1, **how, **encoded}, indent=1).encode()


def opened(sealed: dict[str, Any], key: bytes, where: str, otherwise: str) -> bytes:
    """Open an envelope; ``otherwise`` says why the key may not fit."""
    try:
        nonce, data = (b64decode(sealed[name], validate=True) for name in ("nonce", "sealed"))
        return AESGCM(key).decrypt(nonce, data, PURPOSE)
    except InvalidTag:
        raise KeyStoreError(f"{where} does not open: {otherwise}") from None
    except (KeyError, TypeError, ValueError):
        raise KeyStoreError(f"{where} is not an encrypted key store that can be read") from None


def sealed_document(stored: bytes) -> dict[str, Any] | None:
    """The envelope of an encrypted store, or None for one in clear or anything else."""
    try:
        document = json.loads(stored)
    except ValueError:
        return None
    return document if isinstance(document, dict) and "sealed" in document else None


MODE: Final = 0o600


def open_file_key_store(options: KeyStoreOptions) -> FileKeyStore:
    """The store that the settings ``path`` and ``passphrase_file`` describe in the node's directory."""
    unknown = sorted(set(options.settings) - {"path", "passphrase_file"})
    if unknown:
        raise KeyStoreError(f"a file key store has no settings {', '.join(unknown)}")
    path = options.directory / options.settings.get("path", "keys")
    named = options.settings.get("passphrase_file")
    return FileKeyStore(path, None if named is None else PassphraseSealing(options.directory / named))


class FileKeyStore:
    """A :class:`~qmnode.security.key_stores.KeyStore` in a file. Calls run in a thread."""

    def __init__(self, path: Path, sealing: Sealing | str | None = None) -> None:
        """``sealing`` may be a passphrase."""
        self._path = path
        self._sealing = PassphraseSealing(sealing) if isinstance(sealing, str) else sealing or NoSealing()

    def __repr__(self) -> str:
        return f"<FileKeyStore {self._path}, protected by {self._sealing.protection}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key store holds the way to its keys and is not copied to another process")

    async def read(self) -> KeyStoreContents:
        """The contents; refuses a file that others can read, or that another user owns."""
        return await asyncio.to_thread(self.read_now)

    async def replace(self, pairs: tuple[KeyPair, ...], *, expected_version: int) -> int:
        """Write a new file beside the old one, sync it, and rename it over the old one."""
        return await asyncio.to_thread(self.replace_now, pairs, expected_version=expected_version)

    def read_now(self) -> KeyStoreContents:
        """As :meth:`read`, for callers that may block."""
        folder = self._path.parent
        with as_owner_of(folder):
            stored = read_private(self._path)
        if stored is None:
            if not folder.is_dir():
                raise self._elsewhere("cannot be read")
            return KeyStoreContents(0, ())
        where = str(self._path)
        return decode_contents(self._sealing.open(stored, where), where)

    def replace_now(self, pairs: tuple[KeyPair, ...], *, expected_version: int) -> int:
        """As :meth:`replace`, for callers that may block."""
        try:
            with self._exclusive():
                found = self.read_now().version
                if found != expected_version:
                    raise KeyStoreConflictError(
                        f"{self._path} is at version {found}, not {expected_version}: read it again"
                    )
                clear = encode_contents(KeyStoreContents(found + 1, pairs))
                sealed = self._sealing.seal(clear, str(self._path))
                with as_owner_of(self._path.parent):
                    self._store(sealed)
                return found + 1
        except FileNotFoundError:
            raise self._elsewhere("cannot be written") from None
        except OSError as error:
            raise KeyStoreUnavailableError(f"{self._path} cannot be written: {error.strerror}") from None

    def _elsewhere(self, fault: str) -> KeyStoreUnavailableError:
        return KeyStoreUnavailableError(
            f"{self._path} {fault}: there is no folder {self._path.parent} on this machine; "
            f"do this where the node's keys are, or say where they are"
        )

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """One writer at a time, also across processes. The lock is a file of its own: the store's is replaced."""
        with as_owner_of(self._path.parent):
            flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
            lock = os.open(self._path.with_name(self._path.name + ".lock"), flags, MODE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _store(self, stored: bytes) -> None:
        fresh = self._path.with_name(f"{self._path.name}.new")
        with contextlib.suppress(FileNotFoundError):
            fresh.unlink()  # of a writer that was killed; the lock says that none is at work
        file = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
        with os.fdopen(file, "wb") as stream:
            os.fchmod(file, MODE)
            stream.write(stored)
            stream.flush()
            os.fsync(file)
        fresh.replace(self._path)
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


ENTRY_POINT_GROUP: Final = "qmnode.key_store"
"""An entry point is a function from :class:`KeyStoreOptions` to a :class:`KeyStore`."""
FILE: Final = "file"


def open_key_store(name: str, options: KeyStoreOptions, *, factories: Iterable[Any] | None = None) -> KeyStore:
    """The key store of that name. Raises :class:`KeyStoreError` when there is none, or its settings are wrong."""
    if name == FILE:
        return open_file_key_store(options)
    installed = list(entry_points(group=ENTRY_POINT_GROUP) if factories is None else factories)
    for entry_point in installed:
        if entry_point.name == name:
            factory: Callable[[KeyStoreOptions], KeyStore] = entry_point.load()
            return factory(options)
    known = ", ".join(sorted([FILE, *(entry_point.name for entry_point in installed)]))
    raise KeyStoreError(f"no key store named {name!r} is installed (known: {known})")


# ----------------------------------------------------------------------------------------------------------------------
# The port to a rotation of this node's own keys: its plan, and the change itself.
#
# The directory's plug-in supplies it (``mqenterprise.keys.own_node``), since public keys are published in the
# directory. Nothing here holds a private key.


class RotationAction(enum.StrEnum):
    """The changes of a node's keys, as ``mqenterprise keys`` names them."""

    ROTATE = "rotate"
    ROLLBACK = "rollback"
    RETIRE = "retire"


class StepKind(enum.StrEnum):
    """The step that a key goes through."""

    MAKE = "make"
    """A new key pair is made in the key store."""
    PUBLISH = "publish"
    """The directory shows this key from then on."""
    KEEP = "keep"
    """Another key is published in its place, and it goes on decrypting."""
    RETIRE = "retire"
    """The node stops decrypting with it. It can be brought back."""
    DESTROY = "destroy"
    """Its private half is deleted for good."""


class RotationStage(enum.StrEnum):
    """The stages of a rotation."""

    MAKING = "making"
    READING = "reading"
    """The node reads its key store, so that it decrypts with a new key before anybody encrypts to it."""
    PUBLISHING = "publishing"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """One step of a plan. Times are seconds since 1970, as they are if the plan is carried out now."""

    kind: StepKind
    provider: str
    purpose: KeyPurpose
    length: int
    """Bits of its modulus."""
    fingerprint: str | None = None
    """None for a key that is not made yet."""
    senders_until: float | None = None
    """Until when a sender may still encrypt to the key."""
    needed_until: float | None = None
    """Until when a message that is encrypted to the key may arrive."""


@dataclass(frozen=True, slots=True)
class RotationPlan:
    """The steps of each action on the keys of a node."""

    version: int
    """The version of the key store's contents that the plan is made for."""
    steps: Mapping[RotationAction, tuple[PlannedStep, ...]]
    """Empty for an action that has nothing to do."""


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A key that a rotation has changed, and its state since."""

    fingerprint: str
    purpose: KeyPurpose
    state: KeyState


class RotationFailure(Exception):
    """A rotation cannot begin or go on; the sentence says why and what to do, and holds no part of a key."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class KeyRotation(Protocol):
    """The keys of this node in its key store and in the directory. Raises only :class:`RotationFailure`."""

    async def plan(self) -> RotationPlan:
        """Return what each action would do now. Changes nothing."""
        ...

    async def carry_out(
        self,
        action: RotationAction,
        begun: float,
        read: Callable[[], Awaitable[frozenset[str]]],
        progress: Callable[[RotationStage], None],
    ) -> tuple[KeyChange, ...]:
        """Carry out an action and return the keys that it changed.

        ``read`` has the node read its key store, and returns the fingerprints that it decrypts with. A key that was
        published since ``begun`` is not replaced. After an interruption the same action does the remaining steps.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRotationOptions:
    """The node whose keys are rotated."""

    computer_name: str
    identifier: Callable[[], Guid]
    """Returns QueueManager.Identifier, which the directory may change when the node joins."""
    data: Path
    """The folder of the node, for key stores in files."""
    security: SecuritySettings
    settings: KeyRotationSettings


@runtime_checkable
class RotatesKeys(Protocol):
    """A directory whose plug-in rotates the keys of a node."""

    def key_rotation(self, options: KeyRotationOptions) -> KeyRotation:
        """The rotation of this node's keys."""
        ...
