"""Memory for large messages is used again, and they get other heads without a copy."""

import subprocess
import sys
import threading

import pytest

from qmnode.allocator import lend, lend_in_bytes, with_head, with_other_head
from qmnode.model.stored_message import MAXIMUM_PACKET_SIZE, PREFIX_SIZE

pytestmark = pytest.mark.usefixtures("own_memory")

PROGRAM = """
import resource, sys
from qmnode.allocator import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
blocks, size = int(sys.argv[2]), int(sys.argv[3])
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    batch = [bytearray(b"x") * size for _ in range(blocks)]
    del batch
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(how: str, blocks: int, size: int) -> int:
    command = [sys.executable, "-c", PROGRAM, how, str(blocks), str(size)]
    return int(subprocess.run(command, capture_output=True, check=True).stdout)


@pytest.mark.parametrize(("blocks", "size"), [(6, 3 << 19), (8, MAXIMUM_PACKET_SIZE + PREFIX_SIZE)])
def test_memory_of_a_batch_is_used_again_without_asking_the_kernel(blocks: int, size: int) -> None:
    assert page_faults("kept", blocks, size) < page_faults("returned", blocks, size) / 5


def lent(content: bytes) -> memoryview:
    view = lend(len(content))
    assert view is not None
    view[:] = content
    return view.toreadonly()


def test_a_head_is_put_before_lent_content_without_copying_it() -> None:
    content = lent(b"content" * 100)
    whole = with_head(b"head", content)
    assert isinstance(whole, memoryview) and whole.obj is content.obj and whole.readonly
    assert whole == b"head" + b"content" * 100
    assert content == b"content" * 100
    assert with_head(b"other and longer", content) == b"other and longer" + b"content" * 100


def test_memory_with_a_head_is_lent_again_when_nobody_looks_at_it_any_more() -> None:
    whole = with_head(b"head", lent(b"content"))
    assert isinstance(whole, memoryview)
    first = whole.obj
    others = [lend(7) for _ in range(5)]
    assert first not in [one.obj for one in others if one is not None]
    del whole
    again = lend(7)
    assert again is not None and again.obj is first


@pytest.mark.parametrize("part", [slice(1, None), slice(0, -1), slice(3, 5)])
def test_a_part_of_lent_content_is_joined(part: slice) -> None:
    content = lent(b"content")
    whole = with_head(b"head", content[part])
    assert type(whole) is bytes and whole == b"head" + b"content"[part]
    assert content == b"content"


def test_a_head_that_is_larger_than_the_room_and_memory_of_others_are_joined() -> None:
    content = lent(b"content")
    assert type(with_head(bytes(100), content)) is bytes
    assert type(with_head(b"head", memoryview(b"content"))) is bytes
    assert type(with_head(b"head", b"content")) is bytes
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(with_head(b"head", content)))
    thread.start()
    thread.join()
    assert found == [b"headcontent"] and type(found[0]) is bytes


def prepared(content: bytes) -> memoryview:
    """Content in memory for one that grows by 4 bytes."""
    assert with_other_head(b"longer", b"no content", 2) == b"longer content"
    view = lend_in_bytes(len(content))
    assert view is not None
    view[:] = content
    return view.toreadonly()


def test_content_that_grows_as_the_last_one_did_is_not_copied() -> None:
    assert lend_in_bytes(7) is None  # nothing has grown yet
    content = prepared(b"oldcontent")
    kept = content[3:]
    whole = with_other_head(b"another", content, 3)
    assert type(whole) is bytes and whole == b"anothercontent"
    assert hash(whole) == hash(b"anothercontent")
    assert whole is content.obj.content  # type: ignore[attr-defined]
    del content
    assert kept == b"content"
    assert with_other_head(b"another", kept, 0) == b"anothercontent" == whole  # it belongs to nobody else any more


@pytest.mark.parametrize(("head", "end"), [(b"long, long, long", 3), (b"an", 3), (b"", 0), (b"", 3), (b"other", 3)])
def test_content_that_grows_otherwise_is_joined(head: bytes, end: int) -> None:
    content = prepared(b"oldcontent")
    assert with_other_head(head, content, end) == head + b"oldcontent"[end:]
    assert content == b"oldcontent"


@pytest.mark.parametrize("part", [slice(1, None), slice(0, -1), slice(3, 5)])
def test_a_part_of_content_that_would_fill_the_memory_is_joined(part: slice) -> None:
    content = prepared(b"oldcontent")
    head = b"h" * (14 - len(content[part]))
    assert with_other_head(head, content[part], 0) == head + b"oldcontent"[part]
    assert content == b"oldcontent"


def test_no_memory_is_lent_when_the_last_content_shrank() -> None:
    prepared(b"content")
    assert with_other_head(b"", b"content", 3) == b"tent"
    assert lend_in_bytes(7) is None


def test_no_memory_is_lent_for_more_than_the_largest_message() -> None:
    prepared(b"content")
    assert lend_in_bytes(MAXIMUM_PACKET_SIZE) is not None
    assert lend_in_bytes(2 * MAXIMUM_PACKET_SIZE) is None


def test_few_bytes_objects_are_unfinished_at_a_time() -> None:
    prepared(b"content")
    unfinished = [one for _ in range(20) if (one := lend_in_bytes(7)) is not None]
    assert 0 < len(unfinished) < 20
    with_other_head(b"longer", unfinished[0], 2)
    assert (again := lend_in_bytes(7)) is not None
    assert lend_in_bytes(7) is None
    unfinished.clear()
    assert again is not None and lend_in_bytes(7) is not None


def test_memory_is_free_when_nobody_has_its_object_or_looks_at_it() -> None:
    content = prepared(b"oldcontent")
    count = sys.getrefcount(content.obj.content)  # type: ignore[attr-defined]
    whole = with_other_head(b"another", content, 3)
    assert sys.getrefcount(whole) == count + 1
    del content
    assert sys.getrefcount(whole) == count


def test_a_part_keeps_its_memory() -> None:
    part = prepared(b"x" * 100)[50:]
    others = [bytes(104) for _ in range(100)]  # would take memory that is free
    assert part == b"x" * 50
    assert others.pop() == bytes(104)


def test_memory_of_any_size_is_of_one_type() -> None:
    first, second = prepared(b"content"), prepared(b"other content")
    assert type(first.obj) is type(second.obj)  # to make a type costs more than a copy
