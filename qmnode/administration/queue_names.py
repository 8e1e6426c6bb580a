r"""How operators name queues: as Message Queuing does, and shorter where nothing is lost.

``orders`` is the private queue ``.\private$\orders``; ``private$\orders``, ``orders;journal`` and
``system$;deadletter`` work too. A name with a computer, and a format name, are left as they are.
"""

from typing import Final

from qmnode.errors import MessageQueuingError
from qmnode.structures.names import FormatNameError, from_address

DEAD_LETTERS: Final = r".\SYSTEM$;DEADLETTER"
TRANSACTIONAL_DEAD_LETTERS: Final = r".\SYSTEM$;DEADXACT"
MACHINE_JOURNAL: Final = r".\SYSTEM$;JOURNAL"


def is_format_name(text: str) -> bool:
    """Whether a name is a format name (``DIRECT=...``) and not a path name."""
    return "=" in text.partition("\\")[0]


def queue_name(text: str) -> str:
    """The path name that an operator means, or the format name as it is. Addresses of other systems are understood.

    MQ_ERROR_ILLEGAL_FORMATNAME for those that name no queue.
    """
    try:
        text = from_address(text) or text
    except FormatNameError as error:
        raise MessageQueuingError(error.code, error.sentence) from None
    if is_format_name(text):
        return text
    first, separator, _ = text.partition("\\")
    if first.lower() == "private$" and separator:
        return f".\\{text}"
    if separator:
        return text
    return f".\\{text}" if text.lower().startswith("system$;") else f".\\private$\\{text}"


def format_name(text: str) -> str:
    """A format name that opens the queue that an operator means."""
    name = queue_name(text)
    return name if is_format_name(name) else f"DIRECT=OS:{name}"
