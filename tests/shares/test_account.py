"""Who may take how much of a bounded resource."""

import pytest

from qmnode.shares import OWN, Account, Accountant, Kind, Rates, Resource, declared, stranger

ROWS = Resource("rows", "rows of a table", "places", "transfer.rows", "nothing", reserve=0.5, own=0.1, block=0.1)
ALICE, BOB = declared("ALICE"), declared("BOB")
MALLORY, TRUDY = stranger("10.0.0.66"), stranger("10.0.0.67")


@pytest.fixture
def account() -> Account:
    return Accountant().open(ROWS, 80)


def fill(account: Account, party: tuple[Kind, str]) -> int:
    """Take one after the other until the party is refused."""
    count = 0
    while account.take(party):
        count += 1
    return count


def test_a_block_gets_no_more_than_its_part(account: Account) -> None:
    assert fill(account, MALLORY) == 8
    assert account.refused[Kind.STRANGER] == 1


def test_any_number_of_blocks_leaves_the_reserve(account: Account) -> None:
    for number in range(100):
        fill(account, stranger(f"10.0.1.{number}"))
    assert account.used[Kind.STRANGER] == 40
    assert account.take(ALICE, 30)
    assert account.take(OWN, 10)


def test_addresses_of_one_ipv6_network_are_one_block(account: Account) -> None:
    assert fill(account, stranger("2001:db8::1")) == 8
    assert not account.take(stranger("2001:db8::ffff:2"))


def test_a_new_block_finds_room_beside_busy_ones(account: Account) -> None:
    for number in range(10):
        fill(account, stranger(f"10.0.1.{number}"))
    assert fill(account, TRUDY)


def test_declared_peers_end_up_with_equal_shares(account: Account) -> None:
    assert fill(account, ALICE) == 54  # three quarters of what is not reserved for the node itself
    account.give_back(ALICE, 54)
    for _ in range(100):
        account.take(ALICE)
        account.take(BOB)
    assert abs(account.held(ALICE) - account.held(BOB)) <= 1


def test_a_declared_peer_leaves_room_for_the_next(account: Account) -> None:
    fill(account, ALICE)
    assert account.take(BOB)


def test_the_part_of_the_node_itself_is_for_nobody_else(account: Account) -> None:
    for number in range(100):
        fill(account, declared(f"M{number}"))
    assert account.take(OWN, 8)


def test_what_is_given_back_is_free_again(account: Account) -> None:
    fill(account, MALLORY)
    account.give_back(MALLORY, 8)
    assert account.held(MALLORY) == 0
    assert account.used[Kind.STRANGER] == 0
    assert fill(account, MALLORY) == 8


def test_the_summary_counts_use_and_refusals_by_kind() -> None:
    accountant = Accountant()
    rows = accountant.open(ROWS, 80)
    assert fill(rows, MALLORY) == 8 and rows.take(ALICE, 3)
    assert accountant.summary() == {
        "rows": {
            "unit": "places",
            "total": 80,
            "reserve": 40,
            "used": {"own": 0, "declared": 3, "stranger": 8},
            "refused": {"own": 0, "declared": 0, "stranger": 1},
        }
    }


def test_another_total_applies_to_what_is_held(account: Account) -> None:
    accountant = Accountant()
    first = accountant.open(ROWS, 80)
    first.take(MALLORY, 8)
    assert accountant.open(ROWS, 40) is first
    assert first.room(MALLORY) < 0


def test_a_debt_outlives_its_connection() -> None:
    rates = Rates(0.5)
    assert rates.of("10.0.0.66", 0.0).take(1.5, 0.0) == 2.0
    assert rates.of("10.0.0.66", 1.0).take(0.0, 1.0) == 1.0
    for number in range(10_000):
        rates.of(f"10.{number}", 1.0)
    assert rates.of("10.0.0.66", 1.5).take(0.0, 1.5) == 0.5
