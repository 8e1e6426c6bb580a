"""README.md and docs/ as one session of a shell: every block of code in the order in which a reader meets it.

A block is run, or :data:`NOT_RUN` says why it is not. Nothing else is known of the pages: what is added to one is run.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.docs.reference.commands import PROGRAMS as PROGRAMS_OF_OURS
from tests.docs.reference.commands import program

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PROJECT = Path(__file__).resolve().parents[2]
PROGRAMS = ("ansible-playbook", "export", "make", "mqenterprise", "pip", "qmnode")
NOT_RUN = {
    "make demo": "it has made the enterprise that the pages are run in",
    "pip install": "the environment has it; tests/test_install.py installs it from nothing",
    "mqenterprise directory up": "there is a directory: the demo's",
    "mqenterprise rollback": "it would take away what the pages after it are about; tests/topology rolls back",
    "qmnode send 'PUBLIC=...": "it names no queue; the demo sends signed and encrypted messages",
    "analyze all --from s3://": "it needs a bucket, and goes on for ever; tests/pipeline reads and writes buckets",
    "spark-submit": "it needs a cluster; tests/pipeline has one",
    "qmnode receive --node": "it needs a second node that allows it; tests/remote_read",
    'spark.read.format("qmnode")': "its places are the reader's; tests/pipeline reads all four formats",
    "qmnode restore --from": "there is no copy elsewhere: tests/copies makes some, and restores them",
    "job undo bre-router/7": "there is no such job; tests/operations undoes one",
    "from proton import": "it needs an open door: tests/amqp/test_examples.py",
    "replication_delay    ": "a sum, no command",
    "http://node/v1/keys/rotation": "the version is that of a plan; tests/keys/test_own_node.py calls it",
    "- {name: grafana": "a line of a file",
    "--install-completion": "it changes the reader's shell; tests/commands completes",
    "man qmnode": "tests/docs/test_man_pages.py reads the man pages",
    "message.decoded()": "a part of a program that has a message; tests/bodies decodes messages of every format",
}
"""What begins or is in a command that is not run, and why."""
QUICK = ("README.md", "docs/node.md")
"""The pages that every run of the tests follows; long runs follow all. That all their commands and options exist is in
tests/docs/test_pages.py."""
PAGES_OF_THEIR_OWN = {
    "docs/packages.md": "it is about other machines: tests/packaging installs the packages in clean roots",
    "docs/workgroup.md": "its enterprise has no directory: tests/playbooks/test_workgroup.py rolls it out",
    "docs/tutorial.md": "it begins with nothing: tests/docs/test_tutorial.py does what it says",
    "docs/beside-windows.md": "it is about an Active Directory: tests/docs/test_beside_windows.py has one",
    "docs/failover.md": "it needs two hosts: tests/failover has some",
    "docs/faults.md": "it is about a damaged store: tests/faults and tests/storage damage some",
    "docs/moving.md": "it is about Windows machines: tests/survey and tests/operations have nodes in their place",
}
LANGUAGES = {"yaml": "settings, no commands", "text": "a picture", "json": "an answer"}
LANGUAGES |= dict.fromkeys(
    ("javascript", "go", "java", "csharp"), "tests/amqp/test_examples.py runs all that can be run here"
)
MAY_FIND = {
    r"mqenterprise (plan|drift)\b": 2,  # there is something to do
    r"mqenterprise certificate list\b": 2,  # one is to be renewed
    r"mqenterprise keys status\b": 2,  # something is due
    r"mqenterprise route simulate\b": 2,  # messages would wait
    r"mqenterprise (message find|trace)\b": 1,  # nothing was found
    r"mqenterprise message return error\b": 1,  # nobody has such a queue: no NServiceBus runs there
    r"qmnode decode .*--check\b": 1,  # a packet is broken
}
"""Commands with another exit code that is no failure, as the pages say."""
REPLACED = (
    (r" \[(?:--|[A-Z])[^]]*\](?:\.\.\.)?", ""),  # what may be given
    (r"\bDECLARED\|FILE\b", "DECLARED"),
    (r"\bDECLARED\b", "inventory/contoso.yaml"),
    (r"\bFROM TO\b", "ams-shop cor-warehouse"),
    (r"\bNODE\b", "ams-router"),
    (r"\bALPHA\b", "bre-router"),
    (r"\balice\b", "Warehouse"),
    (r"\bWarehouse FINGERPRINT\b", 'Warehouse "$(fingerprint Warehouse)"'),
    (r"^(qmnode decode) FILE\b", r"\1 tests/conformance/session.pcap"),
    (r"--messages 100000\b", "--messages 2000"),
    # Its node listens at every address: in a network of its own no other node has one of its ports.
    (r"^qmnode run (.*?) &", r"unshare --net sh -c 'ip link set lo up; exec qmnode run \1' &"),
)
"""What stands for something of the reader's."""
PROLOGUE = """\
trap 'kill $(jobs -p) 2>/dev/null' EXIT
fingerprint() { mqenterprise certificate list "$1" --json | python -c '
import json, sys
print(json.load(sys.stdin)[0]["fingerprint"])'; }
"""
MARK = "@@@"
STARTED = re.compile(r"qmnode run --config (\S+?)'? &")
WAIT = "until qmnode status --config {} >status 2>&1; do sleep 0.2; done"
"""After a node was started: the reader takes longer than it needs."""


@dataclass(frozen=True)
class Block:
    """A block of code of a page: its language, or nothing if it is indented."""

    page: str
    line: int
    language: str
    lines: tuple[str, ...]

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[str]:
        """Its commands as they are printed; none if it has none."""
        if self.language == "python":
            text = "\n".join(self.lines)
            return [f"python <<'EXAMPLE'\n{text}\nEXAMPLE"]
        prompted = any(line.startswith("$ ") for line in self.lines)
        found: list[str] = []
        for line in self.lines:
            text = line.removeprefix("$ ")
            if found and found[-1].endswith("\\"):
                found[-1] = f"{found[-1][:-1]} {text.strip()}"
            elif line.startswith("$ ") if prompted else self.language == "sh" or text.startswith(PROGRAMS):
                found += [text] if text.strip() else []
        return found


@dataclass
class Session:
    """The script, with the commands that it runs and what is not run."""

    script: list[str] = field(default_factory=lambda: [PROLOGUE])
    commands: list[tuple[str, str]] = field(default_factory=list)
    """Where each is, and how it is run."""
    unexplained: list[str] = field(default_factory=list)
    """Blocks that are not run, without a reason."""
    whole: bool = True
    """Whether all pages are followed."""

    def add(self, block: Block) -> None:
        if block.page in PAGES_OF_THEIR_OWN or block.language in LANGUAGES or not (self.whole or block.page in QUICK):
            return
        commands = block.commands()
        if not commands and not any(part in "\n".join(block.lines) for part in NOT_RUN):
            self.unexplained.append(f"{block.place}: {block.lines[0]}")
        for command in commands:
            if not any(part in command for part in NOT_RUN):
                self._run(block.place, command)

    def _run(self, place: str, command: str) -> None:
        for pattern, replacement in REPLACED:
            command = re.sub(pattern, replacement, command)
        number = len(self.commands)
        self.commands.append((place, command))
        self.script += [f"echo; echo {MARK} {number} {shlex.quote(command.splitlines()[0])}", command]
        self.script.append(f"code=$?; echo; echo {MARK} {number} $code")
        if started := STARTED.search(command):
            self.script.append(WAIT.format(started[1]))


def pages() -> list[str]:
    """The README, and the pages of docs/ in the order in which it names them; pages that it does not name last."""
    readme = (PROJECT / "README.md").read_text("utf-8")
    further = re.findall(r"\]\((docs/[\w/-]+\.md)", readme.partition("## What do you want to do?")[2])
    rest = sorted(str(path.relative_to(PROJECT)) for path in (PROJECT / "docs").rglob("*.md"))
    return list(dict.fromkeys(["README.md", *further, *rest]))


def blocks(page: str) -> Iterator[Block]:
    """Fenced blocks, and those that are indented after an empty line."""
    language, begun, kept = None, 0, list[str]()
    before = ""
    for number, line in enumerate([*(PROJECT / page).read_text("utf-8").splitlines(), ""], 1):
        fence = re.match(r"^```(\w*)$", line)
        if fence and language:
            yield Block(page, begun, language, tuple(kept))
            language, kept = None, []
        elif fence:
            language, begun = fence[1] or "text", number + 1
        elif language:
            kept.append(line)
        elif kept and (line.startswith("    ") or not line.strip()):
            kept.append(line[4:])
        elif line.startswith("    ") and not before.strip():
            begun, kept = number, [line[4:]]
        if kept and not language and not line.startswith("    ") and line.strip():
            yield Block(page, begun, "", tuple(each for each in kept if each.strip()))
            kept = []
        before = line
    if kept:
        yield Block(page, begun, "", tuple(each for each in kept if each.strip()))


def session(*, whole: bool = True) -> Session:
    """All pages."""
    made = Session(whole=whole)
    for page in pages():
        for block in blocks(page):
            made.add(block)
    return made


def outcomes(said: str, made: Session) -> Iterator[tuple[str, str, int | None, str]]:
    """Where each command is, what it is, its exit code (none if it did not come to its end), and what it printed."""
    for number, (place, command) in enumerate(made.commands):
        _, _, rest = said.partition(f"{MARK} {number} ")
        printed, ended, after = rest.partition(f"{MARK} {number} ")
        yield place, command, int(after.split("\n", 1)[0]) if ended else None, printed


def unknown_options(lines: Iterable[str]) -> list[str]:
    """Of commands of the two programs in these lines, those with an option that they have not."""
    known = {name: {one.path: one for one in program(name).walk()} for name in PROGRAMS_OF_OURS}
    found = []
    for line in lines:
        for part in re.split(r"&&|[|;&]", re.sub(r"\s#.*|'[^']*'|\"[^\"]*\"", " ", line)):
            words = part.split()
            if not words or words[0] not in known:
                continue
            path = words[0]
            for word in words[1:]:
                path = f"{path} {word}" if f"{path} {word}" in known[words[0]] else path
            options = {spelling for one in known[words[0]][path].options for spelling in one.spellings}
            used = {word.partition("=")[0] for word in words if word.startswith("--")}
            if not used <= options | {"--help", "--install-completion"}:
                found.append(part.strip())
    return found


def expected(command: str) -> set[int]:
    """The exit codes that are no failure."""
    return {0} | {code for pattern, code in MAY_FIND.items() if re.search(pattern, command)}
