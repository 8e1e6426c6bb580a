"""Any format name, and several as one: MS-MQMQ 2.1.7."""

from dataclasses import dataclass
from typing import Final, TypeAlias

from qmnode.structures.names.addresses import from_address
from qmnode.structures.names.direct import (
    MAX_NAME_LENGTH,
    DirectFormatName,
    FormatNameError,
    NameReader,
    read_direct_name,
)
from qmnode.structures.names.direct import PREFIX as DIRECT_PREFIX
from qmnode.structures.names.format_names import (
    ConnectorFormatName,
    DistributionListFormatName,
    MachineFormatName,
    MulticastFormatName,
    PrivateFormatName,
    PublicFormatName,
)

FormatName: TypeAlias = (
    DirectFormatName
    | PublicFormatName
    | PrivateFormatName
    | DistributionListFormatName
    | MachineFormatName
    | ConnectorFormatName
    | MulticastFormatName
)
"""One element of a format name."""

MAX_ELEMENTS: Final = 1000
"""Elements in a multiple-element format name. The specification has no limit; this one bounds the work."""

SEPARATOR: Final = ","

_BY_GUID_OR_GROUP: Final = (
    PublicFormatName,
    PrivateFormatName,
    DistributionListFormatName,
    MachineFormatName,
    ConnectorFormatName,
    MulticastFormatName,
)


@dataclass(frozen=True, slots=True)
class MultipleElementFormatName:
    """Several destinations in one name. None of them may be read-only: a journal or a dead-letter queue."""

    elements: tuple[FormatName, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.elements) <= MAX_ELEMENTS:
            raise FormatNameError("", 0, f"1 to {MAX_ELEMENTS} format names")
        for element in self.elements:
            if element.is_read_only:
                raise FormatNameError(str(element), 0, _WRITABLE)

    @classmethod
    def parse(cls, text: str) -> "MultipleElementFormatName":
        """The value of one or more format names with commas between. Raises FormatNameError."""
        if len(text) > MAX_ELEMENTS * (MAX_NAME_LENGTH + len(SEPARATOR)) or text.count(SEPARATOR) >= MAX_ELEMENTS:
            raise FormatNameError(text, 0, f"at most {MAX_ELEMENTS} format names of {MAX_NAME_LENGTH} UTF-16 units")
        elements: list[FormatName] = []
        position = 0
        for part in text.split(SEPARATOR):
            try:
                element = parse_single_format_name(part)
            except FormatNameError as error:
                raise FormatNameError(text, position + error.position, error.expected) from None
            if element.is_read_only:
                raise FormatNameError(text, position, _WRITABLE)
            elements.append(element)
            position += len(part) + len(SEPARATOR)
        return cls(tuple(elements))

    def __str__(self) -> str:
        return SEPARATOR.join(map(str, self.elements))


_WRITABLE: Final = "a queue that can be sent to, not a journal or a dead-letter queue"


def parse_single_format_name(text: str) -> FormatName:
    """The value of a format name of one element, by its prefix in any case. Raises FormatNameError."""
    reader = NameReader(text, FormatNameError)
    if reader.take(DIRECT_PREFIX):
        return read_direct_name(reader)
    for kind in _BY_GUID_OR_GROUP:
        if reader.take(kind.prefix):
            name = kind.read(reader)
            reader.finish()
            return name
    if (meant := from_address(text)) is not None:
        reader.fail(f"{meant}, for which this address of another system stands", 0)
    reader.fail(
        "DIRECT=, PUBLIC=, PRIVATE=, MACHINE=, CONNECTOR=, DL= or MULTICAST=; "
        r"the path name .\private$\orders is opened as DIRECT=OS:.\private$\orders"
    )


def parse_format_name(text: str) -> FormatName | MultipleElementFormatName:
    """The value of any format name: of one element, or of several when there is a comma. Raises FormatNameError."""
    if SEPARATOR in text:
        return MultipleElementFormatName.parse(text)
    return parse_single_format_name(text)
