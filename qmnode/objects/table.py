"""The rows: what MS-MQDMPR 3.1.1 and MS-MQMQ say of each property, and what this product makes of it.

Rows of messages are in :mod:`qmnode.objects.message_table`, which clients load without the others.
"""

from collections.abc import Mapping
from enum import IntEnum
from functools import partial
from typing import Any, Final

from qmnode.objects.message_table import MESSAGE
from qmnode.objects.rows import (
    ACCESS,
    FLAG,
    GUID,
    MULTICAST,
    NO_QUOTA,
    QUOTA,
    Changes,
    Door,
    Form,
    Kind,
    Property,
    Rows,
    choice,
    names,
    number,
    octets,
    of_list,
    recipients,
    seconds,
    text,
)
from qmnode.structures.enumerations import QueuePrivacyLevel
from qmnode.structures.guid import ZERO_GUID

LONGEST_LABEL: Final = 124
"""UTF-16 units of a queue's label (MS-MQMQ 2.3.1.8)."""
LONGEST_DUPLICATE_WINDOW: Final = 604_800
"""Seven days, in seconds."""
MOST_DELIVERIES: Final = 255
"""The store counts failed deliveries in one byte."""
LONGEST_RETRY_PAUSE: Final = 604_800
"""Seven days, in seconds."""
_declared: Final = partial(Property, doors=Door.DECLARATION | Door.DIRECTORY)
"""A property of the enterprise, which no node has for itself."""


class OperatingSystemType(IntEnum):
    """QueueManager.OperatingSystemType; the values are those of the mSMQOSType attribute (MS-MQDSSM 3.1.6.11.1.2)."""

    OTHER = 0x000
    FOREIGN = 0x100
    WIN95 = 0x200
    WIN_CLIENT = 0x300
    WIN_SERVER = 0x400
    WIN_ENTERPRISE = 0x500


def _extension(name: str, form: Form, default: Any, sentence: str, obeyed_by: str) -> Property:
    """A property that no specification has: of queues at their node, since a later release than the first."""
    return Property(
        name, form, default, sentence, "an extension", doors=Door.NODE, added=True, obeyed_by=f"qmnode.{obeyed_by}"
    )


ENTERPRISE: Final = Rows(
    Kind.ENTERPRISE,
    (
        _declared(
            *("weakened_security", FLAG, False, "Queue managers use their own identity for the directory"),
            *("MS-MQDMPR 3.1.1.6", "mSMQNameStyle", "3.1.6.11.3.2"),
            obeyed_by="qmnode.model.public_queues",
        ),
        _declared(
            *("default_time_to_live", seconds(), 345_600, "Seconds that a message has to reach its queue"),
            *("MS-MQMQ 2.3.5.15", "mSMQLongLived", "3.1.6.7.3.2"),
            obeyed_by="qmnode.directory.membership",
        ),
        _declared(
            *("change_notification", FLAG, True, "Queue managers without LDAP are told of changes"),
            *("MS-MQDSSM 3.1.6.7.3.4", "mSMQCSPName", "3.1.6.11.3.3", "non_ldap_capable_queue_manager_notification"),
            unobeyed="nodes have LDAP, and take notifications either way",
        ),
        _declared(
            *("old_directory", FLAG, False, "The directory is MSMQ 1.0's"),
            *("MS-MQDSSM 3.1.6.7.3.2", "mSMQVersion", "3.1.6.7.3.2"),
            unobeyed="nodes use LDAP only, and MSMQ 1.0's directory has none",
        ),
        _declared(
            *("access", ACCESS, None, "Who may change it and create routing links; left alone when it is not declared"),
            *("MS-MQMQ 2.2.26", "nTSecurityDescriptor", "3.1.6.17", "security"),
            obeyed_by="mqenterprise.directory.slapd_configuration",
        ),
    ),
)

_REPLICATED: Final = "directories replicate by their own settings today"
SITE: Final = Rows(
    Kind.SITE,
    (
        _declared(
            *("foreign", FLAG, False, "A network of another message system behind a connector"),
            *("MS-MQDMPR 3.1.1.7", "mSMQSiteForeign", "3.1.6.1.3.2", "foreign_site"),
            obeyed_by="qmnode.routing.snapshot",
        ),
        _declared(
            *("intra_site_replication_interval", seconds(), 2, "Seconds, within the site"),
            *("MS-MQMQ 2.3.3.5", "mSMQInterval1", "3.1.6.1.3.2"),
            unobeyed=_REPLICATED,
        ),
        _declared(
            *("inter_site_replication_interval", seconds(), 10, "Seconds, between sites"),
            *("MS-MQMQ 2.3.3.6", "mSMQInterval2", "3.1.6.1.3.2"),
            unobeyed=_REPLICATED,
        ),
        _declared(
            *("migrated_from_msmq10", FLAG, False, "The site came from MSMQ 1.0"),
            *("MS-MQMQ 2.3.3.10", "mSMQNt4Stub", "3.1.6.1.3.2"),
            unobeyed="it matters during a migration from MSMQ 1.0 only",
        ),
        _declared(
            *("access", ACCESS, None, "Who may change it and add servers to it; left alone when it is not declared"),
            *("MS-MQMQ 2.2.25", "nTSecurityDescriptor", "3.1.6.17", "security"),
            obeyed_by="mqenterprise.directory.slapd_configuration",
        ),
    ),
)

ROUTING_LINK: Final = Rows(
    Kind.ROUTING_LINK,
    (
        _declared(
            *("cost", number(1, 999_999), 1, "The lower, the better the link"),
            *("MS-MQDMPR 3.1.1.8", "mSMQCost", "3.1.6.1.4.2", "actual_cost"),
            obeyed_by="qmnode.routing.router",
        ),
        _declared(
            *("site_gates", names(Kind.MACHINE), ()),
            *("Routing servers of either site that all messages over the link pass", "MS-MQDMPR 3.1.1.8"),
            *("mSMQSiteGates", "3.1.6.1.4.6", "site_gate_identifier_list"),
            obeyed_by="qmnode.routing.router",
        ),
        _declared(
            *("description", text(LONGEST_LABEL), "", "What it is, for people", "MS-MQDMPR 3.1.1.8"),
            *("description", "3.1.6.1.4.2"),
            obeyed_by="mqenterprise.topology.drawing",
        ),
    ),
)

_PASSED: Final = "Routing servers that all its {} messages pass"
MACHINE: Final = Rows(
    Kind.MACHINE,
    (
        _declared(
            *("sites", names(Kind.SITE, 64), (), "Sites that it belongs to", "MS-MQDMPR 3.1.1.1"),
            *("mSMQSites", "3.1.6.1.1.2", "site_identifier_list"),
            obeyed_by="qmnode.routing.snapshot",
        ),
        _declared(
            *("routing_server", FLAG, False, "It routes messages of others", "MS-MQDMPR 3.1.1.1"),
            *("mSMQRoutingServices", "3.1.6.1.1.2"),
            obeyed_by="qmnode.routing.router",
        ),
        _declared(
            *("supporting_server", FLAG, False, "It serves dependent clients", "MS-MQDMPR 3.1.1.1"),
            *("mSMQDependentClientServices", "3.1.6.1.1.2"),
            unobeyed="nodes have no dependent clients",
        ),
        _declared(
            *("directory_server", FLAG, False, "It gives others access to the directory", "MS-MQDMPR 3.1.1.1"),
            *("mSMQDsServices", "3.1.6.1.1.2"),
            unobeyed="nodes ask the directory itself",
        ),
        _declared(
            *("out_routing_servers", names(Kind.MACHINE, 3), (), _PASSED.format("outgoing"), "MS-MQDMPR 3.1.1.1"),
            *("mSMQOutRoutingServers", "3.1.6.1.1.6", "out_routing_server_identifier_list"),
            obeyed_by="qmnode.routing.router",
        ),
        _declared(
            *("in_routing_servers", names(Kind.MACHINE, 3), (), _PASSED.format("incoming"), "MS-MQDMPR 3.1.1.1"),
            *("mSMQInRoutingServers", "3.1.6.1.1.7", "in_routing_server_identifier_list"),
            obeyed_by="qmnode.routing.router",
        ),
        # MS-MQDMPR says bytes, but 0x00100000 bytes would hold no backlog, and Windows counts kilobytes as for a queue.
        _declared(
            *("quota", QUOTA, 0x0010_0000, "Most that all its queues may hold", "MS-MQDMPR 3.1.1.1"),
            *("mSMQQuota", "3.1.6.1.1.2", "queue_manager_quota"),
            obeyed_by="qmnode.model.quotas",
        ),
        _declared(
            *("journal_quota", QUOTA, NO_QUOTA, "Most that all its journals may hold", "MS-MQMQ 2.3.2.14"),
            *("mSMQJournalQuota", "3.1.6.1.1.2"),
            obeyed_by="qmnode.model.quotas",
        ),
        _declared(
            *("foreign", FLAG, False, "Not a queue manager but a foreign system", "MS-MQMQ 2.3.2.18"),
            *("mSMQForeign", "3.1.6.1.1.2", "foreign_system"),
            obeyed_by="qmnode.routing.router",
        ),
        _declared(
            *("operating_system", choice(OperatingSystemType), OperatingSystemType.OTHER, "What it runs on"),
            *("MS-MQDSSM 3.1.6.1.1.4", "mSMQOSType", "3.1.6.1.1.4", "operating_system_type"),
            unobeyed="it is for people and for Windows' own tools",
        ),
        _declared(
            *("version", text(LONGEST_LABEL), "", "Version of the queue manager", "MS-MQDSSM 3.1.6.1.1.2"),
            *("mSMQComputerTypeEx", "3.1.6.1.1.2", "queue_manager_version"),
            obeyed_by="mqenterprise.pipeline.sources.directory_source",
        ),
        _declared(
            *("dns_name", text(255), None, "Fully qualified name", "MS-MQDSSM 3.1.6.11.1"),
            *("dNSHostName", "3.1.6.11.1", "qualified_computer_name"),
            obeyed_by="qmnode.delivery.topology",
        ),
    ),
)

QUEUE: Final = Rows(
    Kind.QUEUE,
    (
        Property(
            *("label", text(LONGEST_LABEL), "", "What it is, for people", "MS-MQMQ 2.3.1.8"),
            *("mSMQLabelEx", "3.1.6.1.2.2"),
            obeyed_by="qmnode.model.queue",
        ),
        Property(
            *("type", GUID, ZERO_GUID, "Type of service; Message Queuing gives it no meaning", "MS-MQMQ 2.3.1.2"),
            *("mSMQQueueType", "3.1.6.1.2.2"),
            obeyed_by="qmnode.model.queue",
        ),
        Property(
            *("transactional", FLAG, False, "Messages are accepted in transactions only", "MS-MQMQ 2.3.1.13"),
            *("mSMQTransactional", "3.1.6.1.2.2"),
            changes=Changes.ONCE,
            obeyed_by="qmnode.model.open_queue",
        ),
        Property(
            *("journaling", FLAG, False, "Copies of received messages go to the queue's journal", "MS-MQMQ 2.3.1.4"),
            *("mSMQJournal", "3.1.6.1.2.2"),
            aliases=("journal",),
            obeyed_by="qmnode.model.reading",
        ),
        Property(
            *("quota", QUOTA, NO_QUOTA, "Most that the queue may hold", "MS-MQMQ 2.3.1.5"),
            *("mSMQQueueQuota", "3.1.6.1.2.2"),
            obeyed_by="qmnode.model.quotas",
        ),
        Property(
            *("journal_quota", QUOTA, NO_QUOTA, "Most that its journal may hold", "MS-MQMQ 2.3.1.7"),
            *("mSMQQueueJournalQuota", "3.1.6.1.2.2"),
            obeyed_by="qmnode.model.quotas",
        ),
        Property(
            *("authentication", FLAG, False, "Only messages with a signature are taken", "MS-MQMQ 2.3.1.11"),
            *("mSMQAuthenticate", "3.1.6.1.2.2"),
            aliases=("authenticate", "authenticated"),
            obeyed_by="qmnode.delivery",
        ),
        Property(
            *("privacy_level", choice(QueuePrivacyLevel, "Privacy"), QueuePrivacyLevel.OPTIONAL),
            *("Whether bodies must, may or must not be encrypted on their way", "MS-MQMQ 2.3.1.12"),
            *("mSMQPrivacyLevel", "3.1.6.1.2.4"),
            aliases=("privacy",),
            obeyed_by="qmnode.delivery",
        ),
        Property(
            *("multicast_address", MULTICAST, "", "Address of the group that it belongs to", "MS-MQMQ 2.3.1.23"),
            *("MSMQ-MulticastAddress", "3.1.6.1.2.2"),
            aliases=("multicast",),
            unobeyed="nodes do not speak multicast (PGM)",
        ),
        Property(
            *("base_priority", number(-0x8000, 0x7FFF), 0),
            *("Priority of its messages against others with the same next hop; only a public queue has one but 0",),
            *("MS-MQMQ 2.3.1.6", "mSMQBasePriority", "3.1.6.1.2.2"),
            public=True,
            obeyed_by="qmnode.delivery.queue_sender",
        ),
        Property(
            *("access", ACCESS, None, "Its access list; left alone when it is not declared"),
            *("MS-MQMQ 2.2.24", "nTSecurityDescriptor", "3.1.6.17", "security"),
            doors=Door.DECLARATION | Door.DIRECTORY,
            obeyed_by="qmnode.security",
        ),
        Property(
            *("security", octets(), b"", "Its security descriptor, self-relative", "MS-DTYP 2.4.6"),
            doors=Door.NODE,
            obeyed_by="qmnode.security",
        ),
        _extension(
            *("duplicate_window", seconds(LONGEST_DUPLICATE_WINDOW, "none"), 0),
            "Seconds within which messages with the same AMQP message id are accepted once; 0 for none",
            "model.duplicates",
        ),
        _extension(
            *("declared", FLAG, False, "A document of the machine made the queue, and may delete it again"),
            "administration.machine_documents",
        ),
        _extension(
            *("max_deliveries", number(0, MOST_DELIVERIES, f"from 0 (no limit) to {MOST_DELIVERIES}"), 0),
            "Deliveries of a message, the first included, after which it is a dead letter; 0 for no limit",
            "model.retries",
        ),
        _extension(
            *("retry_pause", seconds(LONGEST_RETRY_PAUSE, "none"), 0),
            "Seconds until the next delivery of a message after the first that failed; 0 for none",
            "model.retries",
        ),
        _extension(
            *("retry_factor", number(1, 100), 2),
            "What each further failure multiplies the pause by",
            "model.retries",
        ),
        _extension(
            *("retry_longest_pause", seconds(LONGEST_RETRY_PAUSE), 3600),
            "The longest pause between two deliveries of a message",
            "model.retries",
        ),
    ),
)

DECLARED: Final = "declared"
"""The property that marks queues which a document made."""
PRIVATE_QUEUE: Final[Mapping[str, Property]] = {
    row.name: row for row in QUEUE.at(Door.NODE) if row.is_written and not row.public and row.name != DECLARED
}
"""The properties that documents of machines have of private queues, beside access list and owner."""


USER: Final = Rows(
    Kind.USER,
    (
        _declared(
            *("certificates", of_list("a list of certificates"), None),
            *("Certificates that sign its messages; left alone when they are not declared", "MS-MQDMPR 3.1.1.15"),
            *("mSMQSignCertificates", "3.1.6.7.6.2"),
            obeyed_by="qmnode.security",
        ),
    ),
)

QUEUE_ALIAS: Final = Rows(
    Kind.QUEUE_ALIAS,
    (
        _declared(
            *("format_name", text(255), "", "Format name of the queue that it stands for", "MS-MQDSSM 3.1.6.8"),
            *("msMQ-Recipient-FormatName", "3.1.6.8"),
            obeyed_by="qmnode.directory.membership",
        ),
    ),
)

DISTRIBUTION_LIST: Final = Rows(
    Kind.DISTRIBUTION_LIST,
    (
        _declared(
            *("members", recipients(), (), "Public queues, queue aliases and lists that get its messages"),
            *("MS-MQMQ 2.1.5", "member", "3.1.6.9"),
            obeyed_by="qmnode.directory.membership",
        ),
    ),
)

ROWS: Final[Mapping[Kind, Rows]] = {
    rows.kind: rows
    for rows in (ENTERPRISE, SITE, ROUTING_LINK, MACHINE, QUEUE, USER, QUEUE_ALIAS, DISTRIBUTION_LIST, MESSAGE)
}
