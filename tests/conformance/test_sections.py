"""Every numbered section of MS-MQMQ 2.1 to 2.5 is declared somewhere, or has a written reason why not.

A structure tells its section itself. What is not a structure is listed here, and must name the section in the text of
its module, so that a reader of either finds the other.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import qmnode.structures
from qmnode.remote_management import variants
from qmnode.structures import (
    enumerations,
    error_codes,
    guid,
    names,
    properties,
    security_descriptor,
    signature_properties,
    user_message,
)
from qmnode.structures.layout import Structure
from tests.lab.cases import cases

ALL = dict(
    line.split(" ", 1) for line in (Path(__file__).parent / "ms-mqmq-sections.txt").read_text("utf-8").splitlines()
)
SECTIONS = {
    number: title for number, title in ALL.items() if number != "2" and not re.fullmatch(r"2\.3\.\d+\.\d+", number)
}
"""Number and title of each section; those of 2.3 down to the families of properties (each property: test_values.py)."""

DECLARED = {
    "2.1.1": names.PathName,
    "2.1.2": names.DirectFormatName,
    "2.1.3": names.PublicFormatName,
    "2.1.4": names.PrivateFormatName,
    "2.1.5": names.DistributionListFormatName,
    "2.1.6": (names.MachineFormatName, names.ConnectorFormatName, names.MulticastFormatName),
    "2.1.7": names.MultipleElementFormatName,
    "2.2.3": security_descriptor.SecurityInformation,
    "2.2.5": "qmnode.structures.properties",
    "2.2.6": enumerations.QueueFormatType,
    "2.2.11": enumerations.QueueSuffixType,
    "2.2.12": enumerations.VariantType,
    "2.2.13": "qmnode.remote_management.variants",
    "2.2.13.1": variants.Variant,
    "2.2.15": "qmnode.remote_management.variants",
    "2.2.16": "qmnode.remote_management.variants",
    **{f"2.2.16.{number}": "qmnode.remote_management.variants" for number in range(1, 9)},
    "2.2.18.1.1": guid.Guid,
    "2.2.18.1.5": "qmnode.structures.user_message",
    "2.2.18.1.6": enumerations.MessageClass,
    "2.2.18.1.7": "qmnode.structures.user_message",
    "2.2.20": user_message.UserMessage,
    "2.2.23": security_descriptor.QueueManagerAccess,
    "2.2.24": security_descriptor.QueueAccess,
    "2.2.25": security_descriptor.SiteAccess,
    "2.2.26": security_descriptor.EnterpriseAccess,
    "2.2.27": security_descriptor.ConnectedNetworkAccess,
    "2.3": properties,
    "2.4": error_codes.ErrorCode,
    "2.5": signature_properties,
    "2.5.1": signature_properties,
    "2.5.2": signature_properties,
    "2.5.3": signature_properties,
} | {f"2.3.{number}": family for number, family in enumerate(properties.PROPERTY_FAMILIES, start=1)}

NOT_DECLARED = {
    "2.1": "a heading over the kinds of names",
    "2.2": "a heading over the structures",
    "2.2.4": "TA_ADDRESS is in properties that no node reads or writes: addresses come from DNS (MS-MQDMPR 3.1.4.2)",
    "2.2.4.1": "as 2.2.4",
    "2.2.4.2": "as 2.2.4",
    "2.2.14": "VARIANT_BOOL is in no property that a node answers with",
    "2.2.17": "ULARGE_INTEGER is a 64-bit number of the layout engine",
    "2.2.18.1.2": "TxSequenceID is the 64-bit number of TransactionHeader and OrderAck, made in outgoing_sequences",
    "2.2.18.1.3": "MessageIdentifier is a GUID and a 32-bit number; where one travels, its bytes are one field",
    "2.2.18.1.8": "XACTUOW names a transaction of the distributed transaction coordinator, which a node does not have",
    "2.2.12.1": "VARTYPE is the 16-bit number vt of PROPVARIANT, of the values of 2.2.12",
    "2.2.13.2": "a second name for 2.2.13.1",
    "2.2.18": "a heading; that all is little-endian is in the layout engine",
    "2.2.18.1": "a heading over the data types of packets",
    "2.2.19": "a heading over the common headers",
}


def modules():
    return [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(qmnode.structures.__path__, "qmnode.structures.")
    ]


def structures():
    modules()
    pending, found = [Structure], []
    while pending:
        for kind in pending.pop().__subclasses__():
            pending.append(kind)
            if kind.__module__.startswith("qmnode."):
                found.append(kind)
    return found


def structure_sections():
    return {kind.section().removeprefix("MS-MQMQ ") for kind in structures() if kind.section().startswith("MS-MQMQ ")}


def test_the_list_of_sections_is_the_specifications():
    assert len(SECTIONS) == 95
    assert len([number for number in SECTIONS if number.startswith("2.2.")]) == 67


@cases("number", SECTIONS)
def test_each_section_is_declared_or_has_a_reason(number):
    declared = number in structure_sections() or number in DECLARED

    assert declared or number in NOT_DECLARED, f"{number} {SECTIONS[number]}: no declaration and no reason"
    assert not (declared and number in NOT_DECLARED), f"{number} is declared, so it needs no reason"


def test_no_section_is_named_that_the_specification_does_not_have():
    assert structure_sections() | DECLARED.keys() | NOT_DECLARED.keys() <= SECTIONS.keys()


@cases(("number", "declaration"), list(DECLARED.items()))
def test_what_declares_a_section_names_it(number, declaration):
    for one in declaration if isinstance(declaration, tuple) else (declaration,):
        name = one if isinstance(one, str) else one.__name__ if inspect.ismodule(one) else one.__module__
        source = inspect.getsource(importlib.import_module(name))

        assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.]*\d)", source), f"{name} does not name {number}"


def test_every_structure_tells_its_section_and_says_what_it_is():
    for kind in structures():
        assert re.match(r"((MS|MC)-[A-Z0-9]+|C706) \d", kind.section()), kind
        assert kind.__doc__, kind
