"""One wrong bit anywhere in a store: no message is wrong, and none is missing without a word."""

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import structlog

from qmnode import QueueManager
from qmnode.administration.history import History
from qmnode.administration.operations import HISTORY_FILE
from qmnode.errors import ConfigurationError, MessageQueuingError
from qmnode.security.errors import KeyStoreError
from qmnode.security.key_stores import FileKeyStore, KeyPair, KeyPurpose, KeyState
from qmnode.settings.node import read_settings
from qmnode.structures.error_codes import ErrorCode
from tests.faults.conftest import COUNT
from tests.faults.flips import QUEUES, Flip, files_of, flipped, flips, kind_of, make_store
from tests.faults.outcomes import Outcome, named, outcome
from tests.lab.forked import ForkedNode, node_server
from tests.lab.nodes import NodeError, NodeProcess
from tests.security.keys import same_key

pytestmark = [pytest.mark.public_report("nats-io/nats-server#7549"), pytest.mark.timeout(7200)]


def check(store: Path, folder: Path, flip: Flip, seen: Outcome, count: int) -> None:
    """Let ``verify`` name what is damaged, if anything is missing."""
    if seen.missing(count):
        with flipped(store, folder / "checked", flip) as path:
            seen.findings = named(path)


async def campaign(store: Path, folder: Path, seed: int, flip_count: int, count: int) -> Counter[tuple[str, str]]:
    """So many flips of the store; what came of them, by the kind of the file."""
    outcomes: Counter[tuple[str, str]] = Counter()
    for flip in islice(flips(store, seed), flip_count):
        with flipped(store, folder / "flipped", flip) as path:
            seen = await outcome(path)
        check(store, folder, flip, seen, count)
        assert not seen.violations(count), (seed, flip, seen.violations(count), seen.words[:3])
        outcomes[kind_of(flip.file), seen.result] += 1
    return outcomes


def print_outcomes(seed: int, outcomes: Counter[tuple[str, str]]) -> None:
    """So that a part can be repeated, and the parts added."""
    for (kind, result), number in sorted(outcomes.items()):
        print(f"seed {seed}: {kind:24} {result:10} {number}")


async def test_no_message_is_missing_without_a_word(store: Path, tmp_path: Path) -> None:
    outcomes = await campaign(store, tmp_path, 1, 18, COUNT)
    assert outcomes["log", "no start"] == 2
    assert outcomes["CURRENT", "no start"] == 2


@pytest.mark.timeout(300)
async def test_a_record_of_the_manifest_that_would_be_read_for_ever_is_refused(store: Path, tmp_path: Path) -> None:
    (name,) = files_of(store)["manifest"]
    with flipped(store, tmp_path / "flipped", Flip(name, 6, 2)) as path:  # the kind of its first record
        seen = await outcome(path)
    check(store, tmp_path, Flip(name, 6, 2), seen, COUNT)
    assert seen.refused
    assert "the record at byte 0 of a log or manifest is damaged" in seen.words[0]
    assert seen.findings


async def started(path: Path, node: NodeProcess) -> Outcome:
    """The same with a node that runs as a service."""
    seen = Outcome(False, [], [], [])
    try:
        await node.start_again()
        async with await node.connect() as qm:
            seen.words += [one for one in (await qm.status()).warnings if "it is a copy" not in one]  # as each of them
            for name in QUEUES:
                try:
                    async with await qm.open_queue(rf"DIRECT=OS:{name}") as queue:
                        while some := await queue.receive_many(100, timeout=0):
                            seen.bodies += [message.body for message in some]
                except MessageQueuingError as error:
                    if error.code is not ErrorCode.MQ_ERROR_IO_TIMEOUT:
                        seen.words.append(str(error))
    except NodeError as error:
        seen.refused = True
        seen.words.append(str(error))
    except MessageQueuingError as error:
        seen.words.append(str(error))
    finally:
        node.kill()
        node.log.unlink(missing_ok=True)
    return seen


@pytest.mark.soak
@pytest.mark.servers
@pytest.mark.parametrize("part", range(4))
async def test_two_hundred_flips_under_a_node_that_is_started(tmp_path: Path, part: int) -> None:
    seed, outcomes = random.SystemRandom().getrandbits(32) + part, Counter[tuple[str, str]]()
    store = await make_store(tmp_path / "store", tmp_path / "made", 2000)
    with node_server() as server:
        node = ForkedNode(tmp_path / "node", server, data=str(tmp_path / "flipped"))
        for flip in islice(flips(store, seed), 50):
            with flipped(store, tmp_path / "flipped", flip) as path:
                seen = await started(path, node)
            check(store, tmp_path, flip, seen, 2000)
            assert not seen.violations(2000), (seed, flip, seen.violations(2000), seen.words[:3])
            outcomes[kind_of(flip.file), seen.result] += 1
    print_outcomes(seed, outcomes)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(4))
async def test_two_thousand_flips(tmp_path: Path, part: int) -> None:
    seed = random.SystemRandom().getrandbits(32) + part
    store = await make_store(tmp_path / "store", tmp_path / "made", 2000)
    print_outcomes(seed, await campaign(store, tmp_path, seed, 500, 2000))


NODE_YAML = """\
data: /var/lib/qmnode
computer_name: SHOP
transport: {address: 192.0.2.7}
management: {socket: /run/qmnode/management.sock}
storage: {sync: thread, low_space: 512MB}
quotas: {queue_manager_quota: 4GB}
"""


def every_bit(content: bytes, step: int = 1) -> Iterator[bytes]:
    """The content with each of its bits changed in turn, or with one of ``step`` bits."""
    for number in range(0, 8 * len(content), step):
        place, bit = divmod(number, 8)
        yield content[:place] + bytes([content[place] ^ (1 << bit)]) + content[place + 1 :]


@pytest.mark.soak
def test_every_bit_of_the_settings_makes_others_or_a_sentence(tmp_path: Path) -> None:
    file, outcomes = tmp_path / "node.yaml", Counter[str]()
    file.write_text(NODE_YAML)
    right = read_settings(file)
    for content in every_bit(NODE_YAML.encode()):
        file.write_bytes(content)
        try:
            outcomes["the same" if read_settings(file) == right else "others"] += 1
        except ConfigurationError:
            outcomes["refused"] += 1
    print(f"settings: {dict(outcomes)}")


@pytest.mark.soak
def test_no_bit_of_a_file_of_keys_makes_another_key(tmp_path: Path) -> None:
    key, outcomes = same_key(1024), Counter[str]()
    pair = KeyPair.of(key, "provider", KeyPurpose.ENCRYPTION, KeyState.CURRENT, 1.0)
    store = FileKeyStore(tmp_path / "keys")
    store.replace_now((pair,), expected_version=0)
    for content in every_bit((tmp_path / "keys").read_bytes(), 13):
        (tmp_path / "keys").write_bytes(content)
        try:
            found = store.read_now().pairs
            assert [one.private_key.to_der() for one in found if one.private_key] in ([], [key.to_der()])
            facts = [replace(one, private_key=key) for one in found if one.private_key]
            outcomes["the same" if facts == [pair] else "another fact about the key"] += 1
        except KeyStoreError:
            outcomes["refused"] += 1
    print(f"keys: {dict(outcomes)}")


@pytest.mark.soak
async def test_every_bit_of_the_history_of_counters_changes_nothing_or_begins_it_anew(
    store: Path, tmp_path: Path
) -> None:
    file, outcomes = tmp_path / HISTORY_FILE, Counter[str]()
    async with QueueManager.open(tmp_path / "store") as qm:
        shutil.copyfile(store / HISTORY_FILE, file)
        right = History(qm, file)
        right.load()
        expected = await right.series(["*"], "hour", None)
        assert expected["times"]
        for content in every_bit(file.read_bytes()):
            file.write_bytes(content)
            found = History(qm, file)
            with structlog.testing.capture_logs():
                found.load()
            seen = await found.series(["*"], "hour", None)
            assert seen in (expected, {"step": 10, "times": [], "queues": []})
            outcomes["the same" if seen == expected else "begun anew"] += 1
    print(f"history: {dict(outcomes)}")
