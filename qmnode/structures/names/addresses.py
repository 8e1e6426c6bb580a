r"""Addresses that other systems write for queues, as format names.

System.Messaging puts ``FormatName:`` before a format name, WCF writes ``net.msmq://host/private/orders`` and
``msmq.formatname:DIRECT=OS:...``, and adapters ``msmq://host/orders``.
"""

import re
from typing import Final

_PREFIX: Final = re.compile(r"(?:formatname|msmq\.formatname):(?=[^/])", re.IGNORECASE)
_ADDRESS: Final = re.compile(
    r"(?P<scheme>net\.msmq|msmq)://(?P<host>[^/\\:\s]+)/(?P<private>private(?:\$)?/)?(?P<queue>[^/\\\s]+)/?",
    re.IGNORECASE,
)
_SHORT: Final = re.compile(r"msmq:(?=[^/])", re.IGNORECASE)


def from_address(text: str) -> str | None:
    """The format name of such an address, or the path name that follows its scheme; None for other text."""
    if found := _PREFIX.match(text) or _SHORT.match(text):
        return text[found.end() :]
    if (found := _ADDRESS.fullmatch(text)) is None:
        return None
    host = "." if found["host"].lower() == "localhost" else found["host"]
    is_public = found["scheme"].lower() == "net.msmq" and not found["private"]
    return f"DIRECT=OS:{host}\\{'' if is_public else 'private$' + chr(92)}{found['queue']}"
