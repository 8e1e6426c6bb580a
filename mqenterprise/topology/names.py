"""Names of the declared enterprise: the characters that each kind allows, and when two names are equal.

Directory names are compared without regard to case (RFC 4517 4.2.11, ``caseIgnoreMatch``), so two declarations whose
names differ only in case are one object declared twice.
"""

import unicodedata
from typing import Annotated

from pydantic import AfterValidator, Field

from qmnode.structures.names import LOCAL_COMPUTER, NO_QUEUE

MAXIMUM_COMMON_NAME = 64
"""Characters of ``cn`` in Active Directory; OpenLDAP has no limit, Samba does not check it."""
MAXIMUM_QUEUE_NAME = 124
"""UTF-16 code units of a queue name (MS-MQMQ 2.1.1)."""
MAXIMUM_LABEL = 124
"""UTF-16 code units of ``mSMQLabelEx`` (MS-MQMQ 2.3.1.8)."""
MAXIMUM_MACHINE_NAME = 15
"""Characters of a NetBIOS name, which ComputerName is (MS-MQDMPR 3.1.1.1)."""

# Characters that sAMAccountName refuses: a machine is a computer object, so every server's machines keep to them.
_NOT_IN_MACHINE_NAME = frozenset('"/\\[]:;|=,+*?<> .@')


def fold(name: str) -> str:
    """The form under which two names of the directory are the same: case folded, composed, spaces squeezed.

    Case folding can produce a letter that composes with the next one (``ß`` and an acute accent), and composing can
    produce a capital. Both are therefore repeated until nothing changes, so that folding is idempotent.
    """
    if name.isascii():
        return " ".join(name.lower().split())
    while True:
        folded = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
        if folded == name:
            return folded
        name = folded


def utf16_length(text: str) -> int:
    """Length in UTF-16 code units, which is what the directory's and MSMQ's limits count."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _printable(name: str, what: str) -> None:
    for character in name:
        if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
            raise ValueError(f"{what} cannot hold the control character U+{ord(character):04X}")
    if name != name.strip():
        raise ValueError(f"{what} cannot begin or end with a space")


def _common_name(name: str) -> str:
    _printable(name, "a name")
    if not 1 <= utf16_length(name) <= MAXIMUM_COMMON_NAME:
        raise ValueError(f"a name has 1 to {MAXIMUM_COMMON_NAME} UTF-16 units, this one has {utf16_length(name)}")
    return name


def _machine_name(name: str) -> str:
    _printable(name, "a machine name")
    if not 1 <= utf16_length(name) <= MAXIMUM_MACHINE_NAME:
        raise ValueError(
            f"a machine name has 1 to {MAXIMUM_MACHINE_NAME} UTF-16 units, this one has {utf16_length(name)}"
        )
    refused = sorted(_NOT_IN_MACHINE_NAME.intersection(name))
    if refused:
        raise ValueError(f"a machine name cannot hold {' '.join(repr(c) for c in refused)}")
    if fold(name) == "localhost":
        raise ValueError("'localhost' names another machine on each machine: use a name of its own")
    return name


def _queue_name(name: str) -> str:
    # The newer grammars of 2.1.1 also exclude plus, comma and quote; MSMQ 1.0's allows them, directories hold such
    # queues, and the mapping escapes them, so they are accepted here.
    _printable(name, "a queue name")
    if not 1 <= utf16_length(name) <= MAXIMUM_QUEUE_NAME:
        raise ValueError(f"a queue name has 1 to {MAXIMUM_QUEUE_NAME} UTF-16 units, this one has {utf16_length(name)}")
    if name == LOCAL_COMPUTER:
        raise ValueError(NO_QUEUE)
    if fold(name).startswith("private$"):
        raise ValueError(f"a private queue is declared with private: true and the name {name[8:].lstrip(chr(92))!r}")
    refused = sorted({"\\", ";"}.intersection(name))
    if refused:
        raise ValueError(f"a queue name cannot hold {' '.join(refused)} (MS-MQMQ 2.1.1)")
    return name


def _label(text: str) -> str:
    for character in text:
        if unicodedata.category(character) in ("Cc", "Cs"):
            raise ValueError(f"a text cannot hold the control character U+{ord(character):04X}")
    if utf16_length(text) > MAXIMUM_LABEL:
        raise ValueError(f"a text has at most {MAXIMUM_LABEL} UTF-16 units, this one has {utf16_length(text)}")
    return text


CommonName = Annotated[
    str, AfterValidator(_common_name), Field(description="A name in the directory, 1 to 64 UTF-16 units")
]
MachineName = Annotated[
    str, AfterValidator(_machine_name), Field(description="The computer's name, as in a path name (MS-MQMQ 2.1.1)")
]
QueueName = Annotated[
    str, AfterValidator(_queue_name), Field(description="The queue's name, without the computer (MS-MQMQ 2.1.1)")
]
Label = Annotated[str, AfterValidator(_label)]
