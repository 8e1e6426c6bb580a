"""The errors of a store."""

from typing import Final

from qmnode.errors import MessageQueuingError
from qmnode.structures.error_codes import ErrorCode

WHAT_TO_DO: Final = (
    "stop the node; 'qmnode verify' names what is damaged, 'qmnode salvage' brings out every whole message, and "
    "'qmnode restore' puts a backup in its place"
)


class StoreError(MessageQueuingError):
    """The store could not be read or written. After a failed write it accepts no more: reopen the node."""

    def __init__(self, sentence: str, *, damaged: bool = False) -> None:
        super().__init__(ErrorCode.MQ_ERROR_MESSAGE_STORAGE_FAILED, sentence)
        self.damaged = damaged
        """Whether files of the store have other contents than were written: opening it again does not help."""
