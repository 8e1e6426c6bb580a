"""The one exception of the API: what went wrong, as a code of MS-MQMQ 2.4 and a sentence that says what to do."""

import re

from qmnode.structures.error_codes import ErrorCode


class MessageQueuingError(Exception):
    """An operation failed. ``code`` and ``name`` are the field's (MS-MQMQ 2.4), ``sentence`` is for the reader.

    Without a sentence the specification's text for the code is used.
    """

    def __init__(self, code: ErrorCode, sentence: str | None = None) -> None:
        self.code = code
        self.sentence = sentence or self.code.text
        super().__init__(self.code, self.sentence)

    @property
    def name(self) -> str:
        """The code's name, for example ``MQ_ERROR_QUEUE_NOT_FOUND``."""
        return self.code.name

    def __str__(self) -> str:
        return f"{self.name} (0x{self.code:08X}): {self.sentence}"


class MessageTooLargeError(MessageQueuingError):
    """A message does not fit into a packet: no later attempt stores it either."""


def reason_of(error: BaseException) -> str:
    """The text of a system error without its number: ``Connection refused``."""
    return re.sub(r"\[Errno -?\d+\] ?", "", str(error))


class ConfigurationError(Exception):
    """A configuration that cannot be used; says where and why, a line for each mistake."""
