"""The content of a message as a digest: the same for each copy of it, whichever neighbour delivers it."""

from hashlib import blake2b
from typing import Final

from qmnode.structures.base_header import BaseFlags
from qmnode.structures.guid import Guid
from qmnode.structures.packet_view import ADDRESS, FLAGS_AT, NAMES_AT, PRIORITY_AT, SOURCE, Sections, user_flags_of
from qmnode.structures.security_header import SecurityFlags
from qmnode.structures.user_header import UserFlags

_PRIORITY: Final = BaseFlags.PR.mask
_HOPS: Final = UserFlags.RC.mask
_SECURED: Final = UserFlags.SH.mask
_AUTHOR_FLAGS: Final = SecurityFlags.ST.mask | SecurityFlags.AU.mask | SecurityFlags.AS.mask
"""The flags that name the verified author: a copy without the author is another message."""


def content_of(packet: bytes) -> Guid:
    """The digest of a packet as it is stored, without what changes on its way: hops, and the next hop's address.

    Of a decrypted message, the session key does not count: a source that starts anew encrypts the same message again.
    Whether the signature was verified here does count.
    """
    flags = user_flags_of(packet)
    digest = blake2b(packet[SOURCE], digest_size=16)
    # TimeToBeReceived, SentTime and MessageID: a copy that ends earlier is another message.
    digest.update(bytes((packet[PRIORITY_AT] & _PRIORITY,)) + packet[ADDRESS.stop : FLAGS_AT])
    digest.update((flags & ~_HOPS).to_bytes(4, "little"))
    if not flags & _SECURED:
        digest.update(packet[NAMES_AT:])
        return Guid(digest.digest())
    sections = Sections(packet)
    author = (sections.security_flags & _AUTHOR_FLAGS).to_bytes(2, "little")
    parts = (author, sections.security_id, sections.signature, sections.sender_cert)
    digest.update(packet[NAMES_AT : sections.security_at] + b"".join(b"%d " % len(part) + part for part in parts))
    digest.update(packet[sections.properties_at :])
    return Guid(digest.digest())
