"""The coverage-guided fuzzer: ``python -m tests.fuzz.fuzz [TARGET...] [libFuzzer options]``, which ``make fuzz`` runs.

The first byte of an input chooses one of the targets, which are all that there are if none is named. The corpus is kept
in ``.fuzz`` and grows from run to run, apart for each choice of targets; an input that breaks a property is written
there as well, and belongs into ``tests/fuzz/regressions`` once it is understood.
"""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
import sys
from pathlib import Path
from typing import Any

import atheris

from qmnode.structures import generate

HOME = Path(".fuzz")
ROOMS = ("structures", "capture", "bodies", "protocol", "dcerpc", "remote_read", "amqp")
"""Where the parsers are."""
MEASURE_EVERY = 256
"""One of so many inputs has its memory measured: that makes Python several times slower."""

_compile = generate.Code.compile


def _instrumented(self: generate.Code, signature: str, filename: str) -> Any:
    """Parsers are made at run time, so the import hook does not see them."""
    return atheris.instrument_func(_compile(self, signature, filename))


def _import_all() -> None:
    """Parsers that the product imports when it first needs one would run without being instrumented."""
    for room in ROOMS:
        package = importlib.import_module(f"qmnode.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


def main() -> None:
    """Fill the corpus and run."""
    generate.Code.compile = _instrumented  # type: ignore[method-assign]
    with atheris.instrument_imports(include=["qmnode"]):
        from tests.fuzz import properties, seeds

        _import_all()
    only = [name for name in sys.argv[1:] if not name.startswith("-")]
    for name in only:
        if name not in properties.NAMES:
            sys.exit(f"there is no target {name!r}: choose from {', '.join(properties.NAMES)}")
    names = tuple(only) or properties.NAMES
    corpus = HOME / "-".join(["corpus", *only])
    corpus.mkdir(parents=True, exist_ok=True)
    for target, data in seeds.seeds():
        if target in names:
            chosen = bytes([names.index(target)]) + data
            (corpus / hashlib.sha256(chosen).hexdigest()[:20]).write_bytes(chosen)
    count = 0

    def one_input(data: bytes) -> None:
        nonlocal count
        count += 1
        if data:
            target = names[data[0] % len(names)]
            try:
                properties.run(target, data[1:], measure=count % MEASURE_EVERY == 0)
            except BaseException:
                print(f"target {target}, input {data[1:][:200].hex()}", file=sys.stderr)
                raise

    options = [f"-artifact_prefix={HOME}/", "-timeout=20", "-rss_limit_mb=1024", "-max_len=8192"]
    atheris.Setup(
        [sys.argv[0], *options, *(given for given in sys.argv[1:] if given.startswith("-")), str(corpus)], one_input
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
