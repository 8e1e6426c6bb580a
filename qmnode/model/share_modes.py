"""Which open queues exclude each other: Open Queue, MS-MQDMPR 3.1.7.1.5."""

from collections.abc import Iterable
from typing import Final

from qmnode.model.api import Access, Share

_RECEIVE: Final = "receive"
_PEEK: Final = "peek"
_KINDS: Final = {
    Access.RECEIVE: _RECEIVE,
    Access.RECEIVE_ADMIN: _RECEIVE,
    Access.PEEK: _PEEK,
    Access.PEEK_ADMIN: _PEEK,
}

# (kind and mode of one that is open): what of a new one it excludes, first match as the specification orders them.
_EXCLUDED: Final = (
    ((_RECEIVE, Share.DENY_RECEIVE), lambda kind, share: share is Share.DENY_RECEIVE or kind == _RECEIVE),
    ((_PEEK, Share.DENY_RECEIVE), lambda kind, share: kind == _RECEIVE),
    ((_RECEIVE, Share.DENY_NONE), lambda kind, share: share is Share.DENY_RECEIVE),
)


def conflicts(opened: Iterable[tuple[Access, Share]], access: Access, share: Share) -> bool:
    """Whether a queue that is open like this cannot also be opened for ``access`` and ``share``."""
    present = {(_KINDS.get(open_access), open_share) for open_access, open_share in opened}
    kind = _KINDS.get(access)
    for combination, excludes in _EXCLUDED:
        if combination in present:
            return excludes(kind, share)
    return False
