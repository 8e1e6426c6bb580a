"""The endpoint mapper, the server's side: the port of this node's interfaces. It knows no others."""

import ipaddress
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from qmnode.dcerpc.errors import NdrError
from qmnode.dcerpc.interface import NDR_SYNTAX, Interface, SyntaxId, syntax
from qmnode.dcerpc.ndr import (
    CONTEXT_HANDLE,
    GUID,
    NULL_CONTEXT_HANDLE,
    U8,
    U16,
    U32,
    Array,
    Characters,
    NdrStructure,
    Parameters,
    Pointer,
    Room,
    counts,
    member,
)
from qmnode.dcerpc.server import Caller, Service, service
from qmnode.structures.guid import ZERO_GUID, Guid

NOT_REGISTERED: Final = 0x16C9A0D6
"""EPT_S_NOT_REGISTERED in DCE's wire form."""

_UUID_FLOOR: Final = 0x0D
_CONNECTION_ORIENTED: Final = 0x0B
_TCP: Final = 0x07
_IP: Final = 0x09
_LARGEST_TOWER: Final = 2000
_UUID: Final = struct.Struct("<B16sH")


class Tower(NdrStructure):
    """twr_t: floors from the interface down to the host address."""

    length: int = counts("octets", U32, "tower_length", role="size", allowed=range(_LARGEST_TOWER + 1))
    octets: bytes = member(Array(U8), "tower_octet_string")


class MapRequest(Parameters):
    """ept_map: request the endpoints that match a tower."""

    object: Guid | None = member(Pointer(GUID), "object", default=None)
    tower: Tower | None = member(Pointer(Tower), "map_tower")
    entry_handle: bytes = member(CONTEXT_HANDLE, "entry_handle", default=NULL_CONTEXT_HANDLE)
    max_towers: int = member(U32, "max_towers", default=4)


class MapResponse(Parameters):
    """ept_map: return the towers of those endpoints."""

    entry_handle: bytes = member(CONTEXT_HANDLE, "entry_handle", default=NULL_CONTEXT_HANDLE)
    tower_count: int = counts("towers", U32, "num_towers", role="length")
    towers: list[Tower | None] = member(Array(Pointer(Tower), varying=True), "towers")
    status: int = member(U32, "status")


class InquiryType(IntEnum):
    """inquiry_type: the kind of entries to return."""

    ALL = 0
    OF_INTERFACE = 1
    OF_OBJECT = 2
    OF_BOTH = 3


class VersionOption(IntEnum):
    """vers_option: the versions of the interface to return."""

    ALL = 1
    COMPATIBLE = 2
    EXACT = 3
    MAJOR_ONLY = 4
    UP_TO = 5


class InterfaceIdentifier(NdrStructure):
    """rpc_if_id_t: an interface and its version."""

    uuid: Guid = member(GUID, "uuid")
    major: int = member(U16, "vers_major")
    minor: int = member(U16, "vers_minor")


class Entry(NdrStructure):
    """ept_entry_t: an endpoint with its annotation."""

    object: Guid = member(GUID, "object", default=ZERO_GUID)
    tower: Tower | None = member(Pointer(Tower), "tower")
    annotation: str = member(Characters(64), "annotation", default="")


class LookupRequest(Parameters):
    """ept_lookup: request a list of endpoints."""

    inquiry_type: int = member(U32, "inquiry_type", default=InquiryType.ALL)
    object: Guid | None = member(Pointer(GUID), "object", default=None)
    interface: InterfaceIdentifier | None = member(Pointer(InterfaceIdentifier), "Ifid", default=None)
    version_option: int = member(U32, "vers_option", default=VersionOption.ALL)
    entry_handle: bytes = member(CONTEXT_HANDLE, "entry_handle", default=NULL_CONTEXT_HANDLE)
    max_entries: int = member(U32, "max_ents", default=500)


class LookupResponse(Parameters):
    """ept_lookup: return some of the endpoints, and a handle to request the others."""

    entry_handle: bytes = member(CONTEXT_HANDLE, "entry_handle", default=NULL_CONTEXT_HANDLE)
    entry_count: int = counts("entries", U32, "num_ents", role="length")
    entries: list[Entry] = member(Array(Entry, varying=True), "entries")
    status: int = member(U32, "status")


class FreeHandleRequest(Parameters):
    """ept_lookup_handle_free: give up the rest of a list."""

    entry_handle: bytes = member(CONTEXT_HANDLE, "entry_handle", default=NULL_CONTEXT_HANDLE)


class FreeHandleResponse(Parameters):
    """ept_lookup_handle_free: the handle is null."""

    entry_handle: bytes = member(CONTEXT_HANDLE, "entry_handle", default=NULL_CONTEXT_HANDLE)
    status: int = member(U32, "status", default=0)


ENDPOINT_MAPPER: Final = Interface("ept", syntax("e1af8308-5d1f-11c9-91a4-08002b14a0fa", 3))
LOOKUP: Final = ENDPOINT_MAPPER.method("ept_lookup", 2, LookupRequest, LookupResponse, "C706 appendix O")
MAP: Final = ENDPOINT_MAPPER.method("ept_map", 3, MapRequest, MapResponse, "C706 appendix O")
FREE_HANDLE: Final = ENDPOINT_MAPPER.method(
    "ept_lookup_handle_free", 4, FreeHandleRequest, FreeHandleResponse, "C706 appendix O"
)


def tower_of(identifier: SyntaxId, port: int, address: str) -> Tower:
    """The tower of an interface over TCP (C706 appendices I and L). IPv6 addresses have no floor type: 0.0.0.0."""
    host = ipaddress.ip_address(address)
    packed = host.packed if host.version == 4 else bytes(4)
    floors = (
        (_syntax_floor(identifier), (identifier.version >> 16).to_bytes(2, "little")),
        (_syntax_floor(NDR_SYNTAX), (0).to_bytes(2, "little")),
        (bytes((_CONNECTION_ORIENTED,)), (0).to_bytes(2, "little")),
        (bytes((_TCP,)), port.to_bytes(2, "big")),
        (bytes((_IP,)), packed),
    )
    octets = len(floors).to_bytes(2, "little")
    for left, right in floors:
        octets += len(left).to_bytes(2, "little") + left + len(right).to_bytes(2, "little") + right
    return Tower(octets=octets)


def _syntax_floor(identifier: SyntaxId) -> bytes:
    return _UUID.pack(_UUID_FLOOR, identifier.uuid, identifier.version & 0xFFFF)


def floors_of(tower: Tower) -> list[tuple[bytes, bytes]]:
    """The floors, each with its two sides. Raises NdrError if the octets are no tower."""
    octets = tower.octets
    position = 2
    floors = []
    for _ in range(min(int.from_bytes(octets[:2], "little"), 16)):
        sides = []
        for _ in range(2):
            size = int.from_bytes(octets[position : position + 2], "little")
            side = octets[position + 2 : position + 2 + size]
            if len(side) != size or position + 2 > len(octets):
                raise NdrError("a tower that ends within a floor")
            sides.append(side)
            position += 2 + size
        floors.append((sides[0], sides[1]))
    return floors


def interface_of(tower: Tower) -> SyntaxId | None:
    """The interface that a tower over TCP names; None for another kind of tower."""
    floors = floors_of(tower)
    if len(floors) < 4 or len(floors[0][0]) != _UUID.size or floors[3][0] != bytes((_TCP,)):
        return None
    kind, uuid, version = _UUID.unpack(floors[0][0])
    if kind != _UUID_FLOOR:
        return None
    return SyntaxId(Guid(uuid), int.from_bytes(floors[0][1][:2], "little") << 16 | version)


def port_of(tower: Tower) -> int:
    """The TCP port that a tower names."""
    floors = floors_of(tower)
    if len(floors) < 4 or floors[3][0] != bytes((_TCP,)) or len(floors[3][1]) != 2:
        raise NdrError("a tower without a TCP port")
    return int.from_bytes(floors[3][1], "big")


_OF_INTERFACE: Final = (InquiryType.OF_INTERFACE, InquiryType.OF_BOTH)
_OF_OBJECT: Final = (InquiryType.OF_OBJECT, InquiryType.OF_BOTH)


@dataclass(slots=True)
class _Listing:
    """A caller's position in the list of entries."""

    read: int


class EndpointMapper:
    """Answers for interfaces that are all on one port."""

    def __init__(self, interfaces: Mapping[Interface, str], port: Callable[[], int]) -> None:
        """``interfaces`` have an annotation each."""
        self._known = {one.syntax: annotation for one, annotation in interfaces.items()}
        self._port = port

    def service(self) -> Service:
        """The interface with its handlers."""
        return service(ENDPOINT_MAPPER, {LOOKUP: self.lookup, MAP: self.map, FREE_HANDLE: self.free_handle})

    async def map(self, caller: Caller, request: MapRequest) -> MapResponse:
        """ept_map: one tower, or that the interface is not registered. The entry handle is never needed again."""
        wanted = interface_of(request.tower) if request.tower is not None else None
        if wanted not in self._known or not request.max_towers:
            return MapResponse(towers=Room([], request.max_towers), status=NOT_REGISTERED)
        assert wanted is not None
        tower = tower_of(wanted, self._port(), _address_of(caller))
        return MapResponse(towers=Room([tower], request.max_towers), status=0)

    async def lookup(self, caller: Caller, request: LookupRequest) -> LookupResponse:
        """ept_lookup: return matching entries, as many at a time as the caller accepts."""
        handles = caller.association.handles
        listing = handles.get(request.entry_handle, _Listing, caller.principal)
        wanted = [one for one in self._known if _is_wanted(one, request)]
        first = listing.read if listing is not None else 0
        last = min(first + request.max_entries, len(wanted))
        handle = request.entry_handle
        if last == len(wanted):
            handles.close(handle)
            handle = NULL_CONTEXT_HANDLE
        elif listing is None:
            handle = handles.create(_Listing(last), caller.principal, _nothing)
        else:
            listing.read = last
        port, address = self._port(), _address_of(caller)
        found = [Entry(tower=tower_of(one, port, address), annotation=self._known[one]) for one in wanted[first:last]]
        return LookupResponse(
            entry_handle=handle,
            entries=Room(found, request.max_entries),
            status=0 if found else NOT_REGISTERED,
        )

    async def free_handle(self, caller: Caller, request: FreeHandleRequest) -> Parameters:
        """ept_lookup_handle_free: end a listing."""
        handles = caller.association.handles
        if handles.get(request.entry_handle, _Listing, caller.principal) is not None:
            handles.close(request.entry_handle)
        return FreeHandleResponse()


def _nothing() -> None:
    """Do nothing: a list that is not read to its end needs no clean-up."""


def _address_of(caller: Caller) -> str:
    """The address at which the caller reached this node, where it also reaches the interfaces."""
    address = ipaddress.ip_address(caller.local_address.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _is_wanted(identifier: SyntaxId, request: LookupRequest) -> bool:
    """Whether an entry, which belongs to no particular object, matches the request."""
    if request.inquiry_type in _OF_OBJECT and request.object not in (None, ZERO_GUID):
        return False
    if request.inquiry_type not in _OF_INTERFACE:
        return request.inquiry_type in (InquiryType.ALL, InquiryType.OF_OBJECT)
    wanted = request.interface
    if wanted is None or wanted.uuid != identifier.uuid:
        return False
    version = identifier.version & 0xFFFF, identifier.version >> 16
    match request.version_option:
        case VersionOption.ALL:
            return True
        case VersionOption.COMPATIBLE:
            return version[0] == wanted.major and version[1] >= wanted.minor
        case VersionOption.EXACT:
            return version == (wanted.major, wanted.minor)
        case VersionOption.MAJOR_ONLY:
            return version[0] == wanted.major
        case VersionOption.UP_TO:
            return version <= (wanted.major, wanted.minor)
    return False
