"""The errors of a store."""

from qmnode.errors import MessageQueuingError
from qmnode.structures.error_codes import ErrorCode


class StoreError(MessageQueuingError):
    """The store could not be read or written. After a failed write it accepts no more: reopen the node."""

    def __init__(self, sentence: str) -> None:
        super().__init__(ErrorCode.MQ_ERROR_MESSAGE_STORAGE_FAILED, sentence)
