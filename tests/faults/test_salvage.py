"""``qmnode salvage``: every whole message comes out of a damaged store, and the rest is listed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from qmnode.model.stored_message import received_message
from qmnode.storage.salvage import Salvage
from tests.commands.conftest import Command, command
from tests.faults.conftest import COUNT
from tests.faults.flips import LARGE_EVERY, Flip, files_of, flipped, number_of

__all__ = ["command"]


def salvaged(path: Path, workplace: Path) -> tuple[set[int], Salvage]:
    """The numbers of the messages that come out, each once and right."""
    found = Salvage(path)
    messages = list(found.messages(workplace, lambda done, total: None))
    numbers = [number_of(received_message(one.lookup_identifier, one.value).body) for one in messages]
    assert -1 not in numbers and len(set(numbers)) == len(numbers)
    return set(numbers), found


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_sound_store_gives_everything_and_is_not_changed(store: Path, tmp_path: Path) -> None:
    before = contents(store)
    numbers, found = salvaged(store, tmp_path)
    assert numbers == set(range(COUNT))
    assert (found.rest, found.missing) == ([], 0)
    assert contents(store) == before
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / "CURRENT").unlink(),
        lambda path: (path / "CURRENT").write_text("MANIFEST-999999\n"),
        lambda path: max(path.glob("MANIFEST*")).write_bytes(b""),
        lambda path: max(path.glob("MANIFEST*")).unlink(),
    ],
    ids=["no current", "current names another", "empty manifest", "no manifest"],
)
def test_without_what_leads_to_the_tables_everything_comes_out(
    store: Path, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    path = tmp_path / "damaged"
    shutil.copytree(store, path)
    damage(path)
    numbers, found = salvaged(path, tmp_path)
    assert numbers == set(range(COUNT))
    assert "without its manifest" in found.rest[0].sentence


@pytest.mark.parametrize("place", [5, 9000, 20_000])
def test_a_damaged_block_of_a_table_costs_the_messages_in_it(store: Path, tmp_path: Path, place: int) -> None:
    name = max(files_of(store)["table"], key=lambda one: (store / one).stat().st_size)
    with flipped(store, tmp_path / "damaged", Flip(name, place, 3)) as path:
        numbers, found = salvaged(path, tmp_path)
    assert COUNT - 90 < len(numbers) < COUNT  # a block has 16 KiB
    assert found.missing == COUNT - len(numbers)
    assert any(name in one.sentence for one in found.rest)


def test_a_wrong_bit_in_a_batch_of_the_log_costs_the_messages_beside_it(store: Path, tmp_path: Path) -> None:
    (name,) = files_of(store)["log"]
    with flipped(store, tmp_path / "damaged", Flip(name, 30_000, 0)) as path:
        numbers, found = salvaged(path, tmp_path)
    assert COUNT - 90 < len(numbers) < COUNT  # a fragment has 32 KiB
    assert found.rest[0].where == name
    assert "may have held acknowledged messages" in found.rest[0].sentence


def test_a_damaged_large_message_is_named(store: Path, tmp_path: Path) -> None:
    name = files_of(store)["large"][0]
    with flipped(store, tmp_path / "damaged", Flip(name, 1000, 0)) as path:
        numbers, found = salvaged(path, tmp_path)
    (missing,) = set(range(COUNT)) - numbers
    assert missing % LARGE_EVERY == LARGE_EVERY - 1
    (rest,) = found.rest
    assert rest.where.startswith("message 0x") and "orders" in rest.where
    assert name in rest.sentence


def test_messages_of_a_queue_whose_definition_is_lost_get_a_name(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "damaged"
    shutil.copytree(store, path)
    for table in path.glob("*.sst"):
        content = table.read_bytes()
        if (place := content.find(b"pathname")) >= 0:
            table.write_bytes(content[:place] + b"P" + content[place + 1 :])
    found = Salvage(path)
    names = {one.queue for one in found.messages(tmp_path, lambda done, total: None)}
    assert {name.rpartition("-")[0] for name in names} == {r".\private$\salvaged"}
    assert len(names) == 4
    assert sum("its name cannot be read" in one.sentence for one in found.rest) == 4


def test_the_command_writes_a_private_file_that_import_takes(store: Path, tmp_path: Path, command: Command) -> None:
    (name,) = files_of(store)["log"]
    target = tmp_path / "salvaged.ndjson"
    with flipped(store, tmp_path / "damaged", Flip(name, 30_000, 0)) as path:
        answer = command("salvage", str(path), "--to", str(target), "--json")
        again = command("salvage", str(path), "--to", str(target))
        inside = command("salvage", str(path), "--to", str(path / "salvaged.ndjson"))
    assert answer.code == 1
    document = json.loads(answer.out)
    lines = target.read_text("utf-8").splitlines()
    assert len(lines) == document["messages"] > COUNT - 90
    assert document["rest"][0]["where"] == name
    assert target.stat().st_mode & 0o777 == 0o600
    assert again.code == 1 and "cannot be made: File exists" in again.err
    assert inside.code == 1 and "is only read" in inside.err
    none = command("salvage", str(tmp_path / "nothing"), "--to", str(tmp_path / "other"))
    assert none.code == 1 and "is no message store" in none.err
