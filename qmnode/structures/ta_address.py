"""TA_ADDRESS (MS-MQMQ 2.2.4): one transport address. Its type decides its length, so each kind is a structure.

A property such as PROPID_QM_ADDRESS holds any number of them, one after the other.
"""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Final, TypeAlias

from qmnode.structures.errors import PacketError
from qmnode.structures.fields import Guid, const16, guid, raw, u16
from qmnode.structures.layout import Buffer, Structure

IP_ADDRESS_TYPE: Final = 0x0001
IP_RAS_ADDRESS_TYPE: Final = 0x0002
IPX_ADDRESS_TYPE: Final = 0x0003
FOREIGN_ADDRESS_TYPE: Final = 0x0005

_IP_TYPES: Final = {
    IP_ADDRESS_TYPE: "IP_ADDRESS_TYPE",
    IP_RAS_ADDRESS_TYPE: "IP_RAS_ADDRESS_TYPE, through a Remote Access Service server",
}


# fmt: off
class IpTaAddress(Structure, section="MS-MQMQ 2.2.4.1", title="TA_ADDRESS"):
    """An IPv4 address."""

    address_length: int = const16(0, "AddressLength", 4, "Size of Address")
    address_type: int   = u16(2, "AddressType", "Direct, or through a RAS server", values=_IP_TYPES, strict=True,
                              default=IP_ADDRESS_TYPE)
    address: bytes      = raw(4, 4, "Address", "The four numbers of the address, in their order")

    @property
    def ip_address(self) -> IPv4Address:
        """``address`` as an address that prints."""
        return IPv4Address(self.address)


class IpxTaAddress(Structure, section="MS-MQMQ 2.2.4.2", title="TA_ADDRESS"):
    """An IPX address."""

    address_length: int = const16(0, "AddressLength", 10, "Size of Address")
    address_type: int   = const16(2, "AddressType", IPX_ADDRESS_TYPE, "IPX_ADDRESS_TYPE")
    net_number: bytes   = raw(4, 4, "Netnum", "The IPX network")
    node_number: bytes  = raw(8, 6, "nodenum", "The node in the network")


class ForeignTaAddress(Structure, section="MS-MQMQ 2.2.4", title="TA_ADDRESS"):
    """A foreign connected network."""

    address_length: int     = const16(0, "AddressLength", 16, "Size of Address")
    address_type: int       = const16(2, "AddressType", FOREIGN_ADDRESS_TYPE, "FOREIGN_ADDRESS_TYPE")
    connected_network: Guid = guid(4, "Address", "The connected network object")
# fmt: on


TaAddress: TypeAlias = IpTaAddress | IpxTaAddress | ForeignTaAddress

_KINDS: Final[dict[int, type[TaAddress]]] = {
    IP_ADDRESS_TYPE: IpTaAddress,
    IP_RAS_ADDRESS_TYPE: IpTaAddress,
    IPX_ADDRESS_TYPE: IpxTaAddress,
    FOREIGN_ADDRESS_TYPE: ForeignTaAddress,
}
_TYPE_OFFSET: Final = 2


def parse_ta_address(buffer: Buffer, offset: int = 0) -> tuple[TaAddress, int]:
    """The address at ``offset`` and the offset after it. Raises PacketError."""
    number = bytes(buffer[offset + _TYPE_OFFSET : offset + _TYPE_OFFSET + 2])
    address_type = int.from_bytes(number, "little")
    if len(number) < 2 or address_type not in _KINDS:
        raise PacketError("TA_ADDRESS", "AddressType", offset + _TYPE_OFFSET, "is not there, or is no known type")
    return _KINDS[address_type].parse_from(buffer, offset)


def parse_ta_addresses(buffer: Buffer) -> tuple[TaAddress, ...]:
    """All the addresses that fill the buffer. Raises PacketError."""
    addresses: list[TaAddress] = []
    offset = 0
    while offset < len(buffer):
        address, offset = parse_ta_address(buffer, offset)
        addresses.append(address)
    return tuple(addresses)
