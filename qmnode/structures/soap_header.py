"""SoapHeader (MS-MQMQ 2.2.20.7): application text of messages that came over HTTP."""

from qmnode.structures.fields import AFTER, const16, length32, padding, text, u16
from qmnode.structures.layout import Structure


# fmt: off
class SoapHeader(Structure, section="MS-MQMQ 2.2.20.7"):
    """Two sections of text. Lengths are in characters, nulls included.

    The section does not mention padding; BaseHeader.PacketSize counts "padding bytes used to align the various message
    headers on 4-byte boundaries", so each section is padded. Padding is kept.
    """

    header_section_id: int  = const16(0, "HeaderSectionID", 0x0320, "Start of the header section")
    reserved: int           = u16(2, "Reserved", "0, ignored", default=0)
    header_data_length: int = length32(4, "HeaderDataLength", "Characters of Header", of="header", unit=2)
    header: str             = text(8, "Header", "Of the application", empty_is_absent=True, default="")
    header_padding: bytes   = padding("Header padding")
    body_section_id: int    = const16(AFTER, "BodySectionID", 0x0384, "Start of the body section")
    reserved1: int          = u16(AFTER, "Reserved1", "0, ignored", default=0)
    body_data_length: int   = length32(AFTER, "BodyDataLength", "Characters of Body", of="body", unit=2)
    body: str               = text(AFTER, "Body", "Of the application", empty_is_absent=True, default="")
    body_padding: bytes     = padding("Body padding", clipped=True)
# fmt: on
