"""Errors of message security: refusals of received messages, and faults that an operator mends."""

from qmnode.structures.enumerations import MessageClass


class MessageRefusedError(Exception):
    """A received message fails a check of MS-MQQB 3.1.5.8.3.

    ``message_class`` is the negative acknowledgment that the section names (sent only if insecure nacks are on),
    ``sentence`` is for the log; it may name keys and certificates by fingerprint, never by content. ``key_missing``:
    none of our private keys unwraps the session key.
    """

    def __init__(self, message_class: MessageClass, sentence: str, *, key_missing: bool = False) -> None:
        super().__init__(message_class, sentence)
        self.message_class = message_class
        self.sentence = sentence
        self.key_missing = key_missing

    def __str__(self) -> str:
        return f"{self.message_class.name}: {self.sentence}"


class WeakAlgorithmError(Exception):
    """An algorithm or key length that the settings do not allow; the sentence names the setting."""


class LegacyUnavailableError(Exception):
    """An algorithm that needs the extra ``legacy``, which is not installed."""


class KeyStoreError(Exception):
    """Private keys could not be read or written; the sentence says what to do and holds no part of a key."""


class MessageDeferredError(Exception):
    """A received message cannot be judged now: the directory or the key store is unavailable.

    It is neither acknowledged nor refused; its sender keeps it and sends it again (MS-MQQB 3.1.5.8.3 would reject it).
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class KeyStoreUnavailableError(KeyStoreError):
    """The store is unavailable: try again later, and decide nothing until then that depends on its keys."""


class KeyStoreConflictError(KeyStoreError):
    """Another writer has changed the store since it was read: read it again, and decide again."""
