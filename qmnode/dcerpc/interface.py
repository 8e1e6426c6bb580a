"""Interfaces and their methods, and the syntaxes that a presentation context names."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from qmnode.dcerpc.ndr import NDR, NDR64, Parameters, Representation
from qmnode.structures.guid import Guid, guid_from_text


class SyntaxId(NamedTuple):
    """RPC_SYNTAX_IDENTIFIER (MS-RPCE 2.2.2.7): an interface or a transfer syntax, and its version."""

    uuid: Guid
    version: int
    """Major version in the low half, minor in the high half."""


def syntax(uuid: str, major: int, minor: int = 0) -> SyntaxId:
    """Make a syntax identifier from its text form."""
    return SyntaxId(guid_from_text(uuid), minor << 16 | major)


NDR_SYNTAX: Final = syntax("8a885d04-1ceb-11c9-9fe8-08002b104860", 2)
NDR64_SYNTAX: Final = syntax("71710533-beba-4937-8319-b5dbef9ccc36", 1)
REPRESENTATIONS: Final[dict[SyntaxId, Representation]] = {NDR_SYNTAX: NDR, NDR64_SYNTAX: NDR64}

_FEATURES: Final = syntax("6cb71c2c-9812-4540-0000-000000000000", 1)
_FEATURES_PREFIX: Final = 8
SECURITY_CONTEXT_MULTIPLEXING: Final = 0x01
"""Bind time feature (MS-RPCE 2.2.2.14): this server supports several security contexts on a connection."""
KEEP_CONNECTION_ON_ORPHAN: Final = 0x02
"""Bind time feature that both sides support here."""


def offered_features(transfer_syntax: SyntaxId) -> int | None:
    """The bitmask of bind time features, if a transfer syntax is one of those (MS-RPCE 3.3.1.5.3)."""
    uuid, version = transfer_syntax
    if version != _FEATURES.version or uuid[:_FEATURES_PREFIX] != _FEATURES.uuid[:_FEATURES_PREFIX]:
        return None
    return uuid[_FEATURES_PREFIX]


def features_syntax(bitmask: int) -> SyntaxId:
    """The pseudo transfer syntax that offers these features."""
    prefix = _FEATURES.uuid[:_FEATURES_PREFIX]
    return SyntaxId(Guid(prefix + bytes((bitmask, 0, 0, 0, 0, 0, 0, 0))), _FEATURES.version)


@dataclass(frozen=True, slots=True)
class Method:
    """One method: its number, and its request and response parameters."""

    name: str
    opnum: int
    request: type[Parameters]
    response: type[Parameters]
    section: str


@dataclass(frozen=True, slots=True, eq=False)
class Interface:
    """An interface: its identifier in a bind, and its methods by number."""

    name: str
    syntax: SyntaxId
    transfer_syntaxes: tuple[SyntaxId, ...] = tuple(REPRESENTATIONS)
    methods: dict[int, Method] = field(default_factory=dict)

    def method(
        self, name: str, opnum: int, request: type[Parameters], response: type[Parameters], section: str
    ) -> Method:
        """Declare a method of the interface."""
        self.methods[opnum] = method = Method(name, opnum, request, response, section)
        return method
