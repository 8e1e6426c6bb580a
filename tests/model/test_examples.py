"""The examples in the documentation run."""

import ast
import asyncio
import inspect
import textwrap

import pytest

import qmnode
import qmnode.model.api


def examples(module) -> list[str]:
    """The indented blocks of a module's docstring."""
    document = inspect.cleandoc(ast.get_docstring(ast.parse(inspect.getsource(module))) or "")
    blocks, block = [], []
    for line in [*document.splitlines(), "end"]:
        if line.startswith("    ") or (block and not line):
            block.append(line)
        elif block:
            blocks.append(textwrap.dedent("\n".join(block)))
            block = []
    return blocks


@pytest.mark.parametrize("module", [qmnode, qmnode.model.api], ids=lambda module: module.__name__)
async def test_the_examples_run(module, tmp_path):
    found = examples(module)
    assert found
    names = {name: getattr(qmnode, name) for name in qmnode.__all__} | {"qmnode": qmnode, "asyncio": asyncio}
    for code in found:
        code = code.replace('"/var/lib/qmnode"', repr(str(tmp_path / "node")))
        function = "async def example():\n" + textwrap.indent(code, "    ")
        exec(function, names)
        await names["example"]()
