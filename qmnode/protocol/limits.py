"""Fixed numbers of the specification: ranges and limits on the wire."""

from typing import Final

RECOVERABLE_ACK_TIMEOUT: Final = range(0x1F4, 0x1D4C0 + 1)
"""RecoverableAckTimeout in milliseconds, 2.2.2.1."""
ACK_TIMEOUT: Final = range(0x4E20, 0x1D4C0 + 1)
"""AckTimeout in milliseconds, 2.2.2.1."""
MAXIMUM_HOPS: Final = 0x1D
"""The largest UserHeader.Flags.RC, MS-MQMQ 2.2.19.2."""
