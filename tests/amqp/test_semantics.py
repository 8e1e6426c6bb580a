"""Each line of the tables of semantics in the pages about AMQP has a test that fails if the line is wrong.

The table of fields is not here: :mod:`tests.amqp.test_mapping` runs its rows.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.lab.cases import cases

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [ROOT / "docs" / name for name in ("amqp.md", "bridges.md", "reference/amqp-messages.md")]
RUN: Final = "| AMQP 1.0 | sent as | property | received as |"
"""The head of the table that is run as it stands."""

LINES: Final[dict[str, tuple[str, ...]]] = {
    # Who may do what
    "`PLAIN`": (
        "test_admission.py::test_plain_takes_a_name_and_its_secret",
        "test_admission.py::test_plain_is_not_offered_where_others_could_read_it",
        "test_directory_users.py::test_a_user_comes_in_with_its_groups_and_its_password_alone",
    ),
    "`EXTERNAL`": ("test_admission.py::test_a_client_certificate_of_an_authority_offers_external",),
    "`ANONYMOUS`": (
        "test_admission.py::test_amqp_without_sasl_is_anonymous_where_that_is_allowed",
        "test_admission.py::test_everything_else_is_turned_away",
    ),
    # Certificates of users, which the attackers of another folder show
    "names a queue manager": (
        "../adversary/test_users_and_machines.py::test_a_queue_managers_certificate_is_no_users",
        "../adversary/test_users_and_machines.py::test_the_bridge_of_a_node_is_the_user_that_the_settings_say",
    ),
    "names none; its extended key usage permits clients alone": (
        "../adversary/test_users_and_machines.py::test_a_users_certificate_is_no_queue_managers",
    ),
    "names none; has no extended key usage": (
        "../adversary/test_users_and_machines.py::test_certificates_that_servers_may_show_are_taken_until_a_day",
    ),
    # Addresses
    "`orders`": ("test_sending.py::test_a_queue_has_these_addresses",),
    "`private$\\orders`, `.\\orders`": ("test_sending.py::test_a_queue_has_these_addresses",),
    "`orders;journal`, `orders;late`": (
        "test_receiving.py::test_dead_letters_journals_and_subqueues_are_received_from",
    ),
    "`system$;deadletter`, `system$;deadxact`": (
        "test_receiving.py::test_dead_letters_journals_and_subqueues_are_received_from",
    ),
    "`DIRECT=OS:shop\\private$\\orders`": (
        "test_sending.py::test_a_queue_has_these_addresses",
        "test_arrivals.py::test_a_message_is_accepted_when_it_is_in_the_queue_of_the_other_machine",
    ),
    # Sending
    "the message is in its queue, or waits": ("test_sending.py::test_an_accepted_message_is_in_the_queue",),
    "the queue refuses it": ("test_sending.py::test_a_message_is_rejected_with_the_reason_as_condition",),
    "it is not a valid message of AMQP 1.0": (
        "test_sending.py::test_a_message_is_rejected_with_the_reason_as_condition",
    ),
    "it is larger than `amqp.message_size`": ("test_sending.py::test_a_message_that_is_too_large_closes_the_link",),
    "the client sends it already settled": ("test_receiving.py::test_a_presettled_message_is_stored",),
    "the client detaches the link": (
        "test_endings.py::test_nothing_is_lost_by_any_order_of_messages_and_endings",
        "test_endings.py::test_proton_detaches_right_after_settled_messages",
    ),
    # Limits, which the attackers of another folder show
    "`amqp.partial_bytes`": ("../adversary/test_amqp_door.py::test_messages_that_never_end",),
    "`amqp.transaction_bytes`": ("../adversary/test_amqp_crowds.py::test_transactions_without_an_end",),
    "`amqp.attached_bytes`": ("../adversary/test_amqp_crowds.py::test_refused_links_with_long_names",),
    # End to end
    "the other machine reports that the message is in its queue": (
        "test_arrivals.py::test_a_message_is_accepted_when_it_is_in_the_queue_of_the_other_machine",
        "test_arrivals.py::test_only_an_acknowledgment_says_that_a_message_has_arrived",
    ),
    "it reports that it refuses the message": (
        "test_arrivals.py::test_a_message_that_is_not_in_the_queue_is_rejected_with_the_reason",
    ),
    "the message is not delivered in that time": (
        "test_arrivals.py::test_a_message_that_is_not_in_the_queue_is_rejected_with_the_reason",
    ),
    "no report comes within five seconds more": (
        "test_arrivals.py::test_a_message_that_is_not_in_the_queue_is_rejected_with_the_reason",
    ),
    # Duplicates
    "a message with the `message-id` of one": ("test_duplicates.py::test_a_duplicate_is_accepted_and_dropped",),
    "a message in a transaction": ("test_duplicates.py::test_in_a_transaction_the_commit_drops_duplicates",),
    "a message without `message-id`": ("test_duplicates.py::test_a_message_without_an_id_is_no_duplicate",),
    "a `message-id` of another type": ("test_duplicates.py::test_ids_of_different_types_differ",),
    "a message that was rejected, or whose transaction was rolled back": (
        "test_duplicates.py::test_a_message_that_was_rejected_may_come_again",
        "test_duplicates.py::test_in_a_transaction_the_commit_drops_duplicates",
    ),
    "a message from a [bridge](bridges.md) with `at-least-once`": (
        "test_duplicates.py::test_a_bridge_at_least_once_drops_duplicates_of_its_peer",
    ),
    "a message from a bridge with `exactly-once`": (
        "test_duplicates.py::test_a_bridge_at_least_once_drops_duplicates_of_its_peer",
        "test_duplicates.py::test_messages_that_do_not_come_over_amqp_are_no_duplicates",
    ),
    "a message that a client sends to several queues": (
        "test_duplicates.py::test_messages_to_several_queues_at_once_are_no_duplicates",
    ),
    # Receiving
    "`accepted`": ("test_receiving.py::test_each_outcome_does_what_the_table_says",),
    "`released`, or `modified` without a flag": ("test_receiving.py::test_each_outcome_does_what_the_table_says",),
    "`modified` with `delivery-failed`": (
        "test_receiving.py::test_each_outcome_does_what_the_table_says",
        "test_receiving.py::test_a_message_that_fails_too_often_is_poison",
    ),
    "`modified` with `undeliverable-here`, or `rejected`": (
        "test_receiving.py::test_each_outcome_does_what_the_table_says",
    ),
    "none: the receiver settles without an outcome": (
        "test_receiving.py::test_a_message_that_is_settled_without_an_outcome_returns",
        "test_receiving.py::test_a_message_is_locked_while_its_receiver_has_it_and_returns_with_the_link",
    ),
    # A client that is refused
    "`amqp:unauthorized-access` | `Authentication failed`": ("test_admission.py::test_everything_else_is_turned_away",),
    "`amqp:unauthorized-access` | `MQ_ERROR_ACCESS_DENIED`": (
        "test_admission.py::test_the_role_read_neither_sends_nor_receives",
        "test_admission.py::test_the_access_list_of_a_queue_decides",
    ),
    "`amqp:not-found`": ("test_sending.py::test_a_link_to_no_queue_is_refused",),
    # Bodies
    **{
        f"`{kind}` | VT_": (
            "test_fidelity.py::test_each_type_of_a_body_comes_back",
            "test_fidelity.py::test_each_type_of_a_body_is_read_by_msmq",
        )
        for kind in ("byte", "ubyte", "short", "ushort", "int", "uint", "long", "ulong")
    },
    # Bridges
    "`at-least-once` (the default)": ("test_bridges.py::test_a_bridge_goes_on_after_every_cut",),
    "`exactly-once` |": (
        "test_bridges.py::test_a_bridge_goes_on_after_every_cut",
        "test_bridges.py::test_exactly_once_goes_on_where_an_earlier_process_stopped",
    ),
    "`out` | both | the peer accepts a message": ("test_bridges.py::test_messages_go_out_with_all_they_have",),
    "`out` | both | the peer rejects a message": (
        "test_bridges.py::test_a_message_that_the_peer_refuses_is_a_dead_letter",
    ),
    "`out` | both | the peer releases a message": ("test_bridges.py::test_each_answer_of_a_peer_has_its_outcome",),
    "`out` | `at-least-once` | the connection is lost": ("test_bridges.py::test_a_bridge_goes_on_after_every_cut",),
    "`out` | `at-least-once` | the node starts": (
        "test_bridges.py::test_what_was_under_way_at_a_start_is_named_as_possibly_sent_before",
    ),
    "`in` | `at-least-once` | the bridge connects": (
        "test_bridges.py::test_the_first_messages_of_a_connection_may_have_come_before",
    ),
    "`in` | both | the peer delivers a message with a `delivery-count`": (
        "test_bridges.py::test_a_message_that_may_have_come_before_says_so",
    ),
    "`in` | both | a message from the peer is malformed": (
        "test_bridges.py::test_a_message_of_the_peer_that_no_queue_takes_is_refused",
    ),
    "`in` | `at-least-once` | the queue of the node is full": (
        "test_bridges.py::test_a_full_queue_holds_messages_back_at_the_peer",
    ),
    "`in` | `exactly-once` | the queue of the node is full": (
        "test_bridges.py::test_a_full_queue_holds_messages_back_at_the_peer",
    ),
    # Metrics
    "`qmnode_amqp_messages_total` | `accepted`": (
        "test_service.py::test_status_and_metrics_count_what_goes_through_the_door",
    ),
    "`qmnode_amqp_messages_total` | `rejected`": (
        "test_sending.py::test_a_message_is_rejected_with_the_reason_as_condition",
    ),
    "`qmnode_amqp_messages_total` | `delivered`": (
        "test_service.py::test_status_and_metrics_count_what_goes_through_the_door",
    ),
    "`qmnode_amqp_messages_total` | `taken`": (
        "test_service.py::test_status_and_metrics_count_what_goes_through_the_door",
    ),
    "`qmnode_bridge_messages_total` | `carried`": ("test_bridges.py::test_messages_go_out_with_all_they_have",),
    "`qmnode_bridge_messages_total` | `repeated`": ("test_bridges.py::test_a_bridge_goes_on_after_every_cut",),
    "`qmnode_bridge_messages_total` | `rejected`": (
        "test_bridges.py::test_a_message_that_the_peer_refuses_is_a_dead_letter",
    ),
}
"""The beginning of each line, and the tests of this folder that show it."""


def lines() -> list[str]:
    """The rows of the page's tables, without heads and without the table that is run."""
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [row[2:] for table in tables if not table.startswith(RUN) for row in table.splitlines()[2:]]


@cases("line", lines())
def test_a_line_has_tests(line: str) -> None:
    named = [tests for beginning, tests in LINES.items() if line.startswith(beginning)]
    assert named, "no test shows this line: write one, and name it in LINES"
    for test in max(named, key=len):
        file, _, name = test.partition("::")
        assert re.search(rf"^(async )?def {name}\(", (ROOT / "tests" / "amqp" / file).read_text("utf-8"), re.MULTILINE)


def test_no_line_is_named_that_is_not_there() -> None:
    assert not [beginning for beginning in LINES if not any(line.startswith(beginning) for line in lines())]
