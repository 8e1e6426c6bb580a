"""Every block of code on the pages is run, or it is said why it is not; tests/playbooks/test_demo.py runs them."""

from __future__ import annotations

import subprocess

from tests.docs.pages import (
    NOT_RUN,
    PAGES_OF_THEIR_OWN,
    QUICK,
    Block,
    Session,
    blocks,
    expected,
    outcomes,
    pages,
    session,
    unknown_options,
)


def test_every_block_is_run_or_has_a_reason() -> None:
    made = session()

    assert made.unexplained == []
    assert len(made.commands) > 60
    assert {place.partition(":")[0] for place, _ in made.commands} >= {"README.md", "docs/node.md", "docs/keys.md"}


def test_a_quick_session_follows_its_pages_whole() -> None:
    whole, quick = session().commands, session(whole=False).commands

    assert quick == [(place, command) for place, command in whole if place.partition(":")[0] in QUICK]
    assert len(quick) > 25


def test_every_command_and_option_of_the_pages_exists() -> None:
    lines = [line for page in pages() for block in blocks(page) for line in block.commands()]
    assert len([line for line in lines if line.startswith(("qmnode ", "mqenterprise "))]) > 80
    assert unknown_options(lines) == []
    assert unknown_options(["qmnode status --wit 3 | mqenterprise show --dpi"]) == [
        "qmnode status --wit 3", "mqenterprise show --dpi"
    ]  # fmt: skip


def test_pages_come_in_the_order_in_which_the_readme_names_them() -> None:
    assert pages()[:4] == ["README.md", "docs/tutorial.md", "docs/glossary.md", "docs/node.md"]


def test_no_reason_is_left_of_a_block_that_has_gone() -> None:
    text = "\n".join(line for page in pages() for block in blocks(page) for line in block.lines)

    assert [part for part in NOT_RUN if part not in text] == []
    assert set(PAGES_OF_THEIR_OWN) <= set(pages())


def test_exit_codes_and_what_was_printed_are_those_of_the_commands() -> None:
    made = Session()
    for line in ("qmnode() { echo told >&2; return 3; }", "qmnode", "python -c 'print(1)' | sort -r", "exit 7", "true"):
        made.add(Block("README.md", 1, "sh", (line,)))
    done = subprocess.run(
        ["bash", "-c", "\n".join(made.script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )

    found = list(outcomes(done.stdout, made))

    assert [code for _, _, code, _ in found] == [0, 3, 0, None, None]
    assert found[1][3].split() == ["qmnode", "told"]
    assert expected("mqenterprise plan x") == {0, 2} != expected("mqenterprise apply x") == {0}
