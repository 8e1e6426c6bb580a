"""The rules of the wire: limits, 16-bit counters, protocol errors."""

from typing import Final

# ----------------------------------------------------------------------------------------------------------------------
# Protocol errors, local and remote.


class ProtocolError(Exception):
    """A rule of MS-MQQB was broken."""


class LocalProtocolError(ProtocolError):
    """The calling code requested something that the state does not allow: a bug on this side."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that its state does not allow. The session closes (3.1.5.1.3); other sessions are
    unaffected.

    ``section`` is the section of MS-MQQB or MS-MQMQ that was broken, ``sentence`` explains how.
    """

    def __init__(self, section: str, sentence: str) -> None:
        super().__init__(section, sentence)
        self.section = section
        self.sentence = sentence

    def __str__(self) -> str:
        return f"{self.sentence} ({self.section})"


# ----------------------------------------------------------------------------------------------------------------------
# Fixed numbers of the specification: ranges and limits on the wire.

RECOVERABLE_ACK_TIMEOUT: Final = range(0x1F4, 0x1D4C0 + 1)
"""RecoverableAckTimeout in milliseconds, 2.2.2.1."""
ACK_TIMEOUT: Final = range(0x4E20, 0x1D4C0 + 1)
"""AckTimeout in milliseconds, 2.2.2.1."""
MAXIMUM_HOPS: Final = 0x1D
"""The largest UserHeader.Flags.RC, MS-MQMQ 2.2.19.2."""


# ----------------------------------------------------------------------------------------------------------------------
# Conversion between 16-bit counters on the wire and unlimited counters inside.
#
# Session counters wrap after 65,536 messages (3.1.1.3.1). A number from the wire is read as the one nearest to a count
# that both sides know, so that nothing inside ever wraps and numbers compare normally.

_HALF: Final = 0x8000
WORD: Final = 0xFFFF
"""Mask of a 16-bit counter: ``count & WORD`` goes on the wire."""


def nearest(word: int, reference: int) -> int:
    """The count that is ``word`` modulo 65,536 and nearest to ``reference``; may be negative near zero."""
    return reference + ((word - reference + _HALF) & WORD) - _HALF
