r"""Addresses that other systems write for queues, as format names.

System.Messaging puts ``FormatName:`` before a format name, WCF writes ``net.msmq://host/private/orders`` and
``msmq.formatname:DIRECT=OS:...``, and adapters ``msmq://host/orders``.
"""

import re
from typing import Final
from urllib.parse import unquote

from qmnode.structures.names.direct import FormatNameError

_PREFIX: Final = re.compile(r"(?:formatname|msmq\.formatname):\s*(?=[^/\s])", re.IGNORECASE)
_ADDRESS: Final = re.compile(
    r"(?P<scheme>net\.msmq|msmq)://(?P<host>\[[0-9A-Fa-f:.]+\]|[^/\\:\s]+)(?P<port>:[0-9]+)?"
    r"/(?P<private>private(?:\$|%24)?/)?(?P<queue>[^/\\]+)/?",
    re.IGNORECASE,
)
_WEB: Final = re.compile(r"https?://[^/]+/msmq/.+", re.IGNORECASE)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PATH: Final = re.compile(r"msmq:/?(?=[^/\\=]+/[^\\=]+$)", re.IGNORECASE)
_SHORT: Final = re.compile(r"msmq:(?=[^/])", re.IGNORECASE)
_UNPREFIXED: Final = re.compile(r"(?:os|tcp):[^\\=]+\\", re.IGNORECASE)
_MULTICAST: Final = re.compile(r"2(?:2[4-9]|3[0-9])(?:\.[0-9]{1,3}){3}:[0-9]+")
_WITH_PORT: Final = re.compile(r"(direct=os:[^\\:=]+):[0-9]+(\\.+)", re.IGNORECASE)


def from_address(text: str) -> str | None:
    """The format name of such an address, or the path name that follows its scheme; None for other text.

    Raises FormatNameError, with the name to use if there is one, for an address that says more than a name can, or is
    none of Message Queuing.
    """
    text = text.strip()
    if found := _WITH_PORT.match(text):
        raise FormatNameError(text, len(found[1]), f"no port: use {found[1]}{found[2]}")
    if found := _PATH.match(text):
        return from_address(f"msmq://{text[found.end() :]}")
    if found := _PREFIX.match(text) or _SHORT.match(text):
        rest = text[found.end() :]
        return from_address(rest) or rest
    if _UNPREFIXED.match(text):
        return f"DIRECT={text}"
    if _MULTICAST.fullmatch(text):
        return f"MULTICAST={text}"
    if _WEB.fullmatch(text):
        return f"DIRECT={text}"
    if (found := _ADDRESS.fullmatch(text)) is None:
        if scheme := _SCHEME.match(text):
            raise FormatNameError(
                text,
                0,
                rf"a name such as orders or DIRECT=OS:host\private$\orders, and no address with {scheme[0]}; "
                r"an own queue of this name is .\private$\NAME",
            )
        return None
    host = found["host"]
    kind = f"TCP:{host[1:-1]}" if host.startswith("[") else f"OS:{'.' if host.lower() == 'localhost' else host}"
    is_public = found["scheme"].lower() == "net.msmq" and not found["private"]
    name = f"DIRECT={kind}\\{'' if is_public else 'private$' + chr(92)}{unquote(found['queue'])}"
    if found["port"]:
        raise FormatNameError(text, found.start("port"), f"no port: use {name}")
    return name
