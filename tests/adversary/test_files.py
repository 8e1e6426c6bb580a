"""Files that decide what a node does, and who could have written them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import qmnode
from qmnode.management.tokens import Consoles, Tokens
from qmnode.settings.node import ConfigurationError
from tests.adversary.attacks import Area, attack
from tests.lab.nodes import NodeProcess
from tests.lab.waiting import holds
from tests.management.conftest import OPERATOR, write_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

ATTACKER, GROUP = 61_234, 61_235
"""A user of the machine, and the group to which the node's files belong."""
FORGED: Final = "mine"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the node that others can pass through, as ``/etc`` is."""
    made = Path(tempfile.mkdtemp(prefix="qmfiles"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def as_attacker(code: str, *arguments: object) -> bool:
    """Whether the attacker, a member of the group, can do something."""
    words = ["/usr/bin/python3", "-IS", "-c", f"import os, sys; {code}", *map(str, arguments)]
    return not subprocess.run(words, user=ATTACKER, group=GROUP, extra_groups=[], stderr=subprocess.DEVNULL).returncode


def forge(tokens: Path) -> bool:
    """Whether the attacker can put a token of his own into the file."""
    text = json.dumps(
        [{"name": "mallory", "role": "administer", "sha256": hashlib.sha256(FORGED.encode()).hexdigest()}]
    )
    return as_attacker("open(sys.argv[1], 'w').write(sys.argv[2])", tokens, text)


@attack(
    Area.DOORS,
    can="as a user of the machine, write or replace the node's files of tokens and consoles, as their group may",
    promised="files that another user could change decide nothing",
)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_files_that_another_user_writes_decide_nothing(folder: Path) -> None:
    tokens = write_tokens(folder)
    os.chown(tokens, 0, GROUP)
    known = Tokens(tokens)
    tokens.chmod(0o640)
    assert not forge(tokens), "the group may only read"
    known.load()

    tokens.chmod(0o660)
    assert forge(tokens)
    with pytest.raises(ConfigurationError, match=rf"its group may write it \(mode 660\): chmod go-w {tokens}"):
        known.load()
    assert known.caller(FORGED) is None
    assert known.caller(OPERATOR) is not None, "what was there before stays"

    os.chown(write_tokens(folder), ATTACKER, GROUP)
    assert forge(tokens)
    with pytest.raises(ConfigurationError, match=f"belongs to user {ATTACKER}"):
        Tokens(tokens)

    os.chown(write_tokens(folder), 0, 0)
    for owner, mode in ((ATTACKER, 0o755), (0, 0o777)):
        os.chown(folder, owner, 0)
        folder.chmod(mode)
        assert as_attacker("os.rename(sys.argv[1], sys.argv[2])", tokens, folder / "moved")
        write_tokens(folder)
        for kind in (Tokens, lambda path: Consoles(path, "here")):
            with pytest.raises(ConfigurationError, match=r"may write it|may replace it"):
                kind(tokens)


@pytest.mark.servers
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to a group")
async def test_status_warns_of_settings_that_another_user_writes(folder: Path) -> None:
    node = NodeProcess(folder / "node")
    (folder / "node").chmod(0o755)

    async def warned(*sentences: str) -> None:
        async def is_so() -> bool:
            async with qmnode.connect(node.socket) as manager:
                return (await manager.status()).warnings == sentences

        await holds(is_so, 60, f"the node warns of {sentences}")

    node.config.chmod(0o664)
    node.start()
    try:
        await warned(f"settings: {node.config}: its group may write it (mode 664): chmod go-w {node.config}")
        node.config.chmod(0o644)
        node.send_signal(signal.SIGHUP)
        await warned()
    finally:
        node.stop()
