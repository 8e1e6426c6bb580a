"""ansible-test without the internet: its environments take what they need from the one that the tests run in.

ansible-test makes a virtual environment for each sanity test and downloads pip into it, from a server of its own. It
keeps what it downloaded in a cache; there we put a script that stands for pip: it lets the environment see this one,
and says yes to what is installed here and no to all else.
"""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path
from textwrap import dedent

import ansible_test

_PIP = '''
    """Stands for pip: nothing is downloaded, and nothing that is missing goes unnoticed."""
    import re
    import sys
    from importlib.metadata import PackageNotFoundError, version

    arguments = sys.argv[1:]
    wanted = [argument for argument in arguments[1:] if re.match(r"[A-Za-z][\\w.-]*==", argument)]
    for flag, value in zip(arguments, arguments[1:]):
        if flag == "-r":
            with open(value, encoding="utf-8") as file:
                wanted += [line for line in file if re.match(r"[A-Za-z]", line)]
    missing = []
    for requirement in wanted if arguments[:1] == ["install"] else ():
        name = re.split(r"[=<> ]", requirement, maxsplit=1)[0]
        try:
            version(name)
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        sys.exit(f"not installed beside the tests: {', '.join(missing)}")
'''
_BOOTSTRAP = """
    import sysconfig
    from pathlib import Path

    site = Path(sysconfig.get_paths()["purelib"])
    (site / "beside.pth").write_text({beside!r})
    (site / "pip").mkdir()
    (site / "pip/__init__.py").touch()
    (site / "pip/__main__.py").write_text({pip!r})
"""


def prepare(home: Path) -> None:
    """Fill the cache of ansible-test under this home directory."""
    sources = Path(ansible_test.__file__ or "").parent / "_internal/python_requirements.py"
    versions = set(re.findall(r"\bpip='([\d.]+)'", sources.read_text("utf-8")))
    assert versions, "ansible-test does not say any more which pip it wants"
    cache = home / ".ansible/test/cache"
    cache.mkdir(parents=True)
    script = dedent(_BOOTSTRAP).format(beside=sysconfig.get_paths()["purelib"], pip=dedent(_PIP))
    for version in versions:
        (cache / f"get_pip_{version.replace('.', '_')}.py").write_text(script)
