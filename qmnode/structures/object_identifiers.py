"""Identifiers of queues beside the GUID: OBJECTID (MS-MQMQ 2.2.8), DL_ID (2.2.9), MULTICAST_ID (2.2.10), and LPWSTR.

These are structures of RPC interfaces. Here they are written field after field without NDR's pointers: a string follows
in place, ended by a null.
"""

from __future__ import annotations

from ipaddress import IPv4Address

from qmnode.structures.fields import Guid, guid, text_to_null, u32
from qmnode.structures.layout import Structure


# fmt: off
class LpWStr(Structure, section="MS-DTYP 2.2.36", title="LPWSTR"):
    """A null-terminated Unicode string."""

    text: str = text_to_null(0, "LPWSTR", "UTF-16, ended by a null")


class ObjectId(Structure, section="MS-MQMQ 2.2.8", title="OBJECTID"):
    """An object within a group; for a private queue, its number at a queue manager."""

    lineage: Guid   = guid(0, "Lineage", "The group, such as the queue manager that owns the object")
    uniquifier: int = u32(16, "Uniquifier", "The object within the group")


class DlId(Structure, section="MS-MQMQ 2.2.9", title="DL_ID"):
    """The identifier of a distribution list."""

    dl_guid: Guid = guid(0, "m_DlGuid", "The group object in the directory")
    domain: str   = text_to_null(16, "m_pwzDomain", "The domain of that object, perhaps empty", default="")


class MulticastId(Structure, section="MS-MQMQ 2.2.10", title="MULTICAST_ID"):
    """A multicast address and port. The address is in network byte order: its first number is the first byte."""

    address: int = u32(0, "m_address", "IPv4 address, the bytes in network order")
    port: int    = u32(4, "m_port", "Port, 0 to 65535", allowed=range(0x10000))

    @property
    def ip_address(self) -> IPv4Address:
        """``address`` as a printable IP address."""
        return IPv4Address(self.address.to_bytes(4, "little"))

    @classmethod
    def of(cls, address: IPv4Address, port: int) -> MulticastId:
        """The identifier of an address and a port."""
        return cls(address=int.from_bytes(address.packed, "little"), port=port)
# fmt: on
