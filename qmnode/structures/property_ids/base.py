"""What every property identifier carries: MS-MQMQ 2.3."""

from enum import IntEnum
from typing import Self

from qmnode.structures.variant_types import VariantType


class PropertyId(IntEnum):
    """A PROPID: its number, the type of its value in a PROPVARIANT (2.2.12), and the section that describes it."""

    variant_type: VariantType
    section: str

    def __new__(cls, value: int, variant_type: VariantType = VariantType.VT_EMPTY, section: str = "") -> Self:
        member = int.__new__(cls, value)
        member._value_ = value
        member.variant_type = variant_type
        member.section = section
        return member
