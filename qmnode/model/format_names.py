"""Format names that applications put into the properties of a message."""

from qmnode.errors import MessageQueuingError
from qmnode.structures.names import FormatName, QueueNameError, parse_single_format_name


def format_name_of_property(text: str) -> FormatName:
    """A format name of one queue. MQ_ERROR_ILLEGAL_FORMATNAME when it is none: the message is not sent."""
    try:
        return parse_single_format_name(text)
    except QueueNameError as error:
        raise MessageQueuingError(error.code, error.sentence) from None
