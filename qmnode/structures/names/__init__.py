"""Names of queues: MS-MQMQ 2.1. Each form is a frozen type that parses from text and prints as text.

Parsing raises a QueueNameError with the error code, the position, and the expected text.
"""

from qmnode.structures.names.direct import (
    LOCAL_COMPUTER,
    NO_QUEUE,
    DirectFormatName,
    DirectProtocol,
    FormatNameError,
    MachineQueue,
    PathName,
    PathNameError,
    QueueKind,
    QueueNameError,
    fold,
)
from qmnode.structures.names.format_names import (
    ConnectorFormatName,
    DistributionListFormatName,
    MachineFormatName,
    MulticastFormatName,
    PrivateFormatName,
    PublicFormatName,
)
from qmnode.structures.names.multiple import (
    FormatName,
    MultipleElementFormatName,
    parse_format_name,
    parse_single_format_name,
)

__all__ = [
    "LOCAL_COMPUTER",
    "NO_QUEUE",
    "ConnectorFormatName",
    "DirectFormatName",
    "DirectProtocol",
    "DistributionListFormatName",
    "FormatName",
    "FormatNameError",
    "MachineFormatName",
    "MachineQueue",
    "MulticastFormatName",
    "MultipleElementFormatName",
    "PathName",
    "PathNameError",
    "PrivateFormatName",
    "PublicFormatName",
    "QueueKind",
    "QueueNameError",
    "fold",
    "parse_format_name",
    "parse_single_format_name",
]
