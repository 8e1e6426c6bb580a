"""What the base install costs a node, measured on a real install from the lock; and how `make` installs the rest."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from packaging.requirements import Requirement

if TYPE_CHECKING:
    from types import ModuleType

PROJECT = Path(__file__).resolve().parent.parent
LOCK = (PROJECT / "requirements.lock").read_text("utf-8")
SUPPORTED = ("3.11", "3.12", "3.13")
CLASSIFIERS = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]["classifiers"]
LIMIT_BYTES = 82 * 1000 * 1000


def program(name: str) -> ModuleType:
    """A program of ``.ci`` as a module."""
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(PROJECT / ".ci" / name))
    specification = importlib.util.spec_from_loader(loader.name, loader)
    assert specification is not None
    module = importlib.util.module_from_spec(specification)
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = written
    return module


@pytest.fixture(scope="module")
def installer() -> ModuleType:
    return program("install")


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    return program("check-lock")


def installed_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


@pytest.mark.slow
def test_the_base_install_stays_under_82_mb(installer: ModuleType, tmp_path: Path) -> None:
    constraints, target = tmp_path / "constraints.txt", tmp_path / "installed"
    constraints.write_text(installer.without_hashes(LOCK))
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--constraint", str(constraints), "--target", str(target), str(PROJECT)),
        ],
        check=True,
    )
    assert (target / "rocksdict").is_dir(), "the install did not bring what a node needs"
    assert not (target / "pyspark").exists()
    assert not (target / "ldap3").exists()
    size = installed_bytes(target)
    assert size < LIMIT_BYTES, f"the base install takes {size / 1e6:.1f} MB"


def test_every_locked_package_has_hashes_and_none_an_address(installer: ModuleType) -> None:
    packages = re.findall(r"(?m)^[a-z0-9][a-z0-9.-]*==\S+(?: ; .+)?( \\\n    --hash=sha256:[0-9a-f]{64})+$", LOCK)
    lines = installer.without_hashes(LOCK).splitlines()
    assert len(packages) == len(lines) > 100
    entries = [Requirement(line) for line in lines]
    assert all(len(one.specifier) == 1 and str(one.specifier).startswith("==") for one in entries)
    assert "://" not in LOCK


def test_the_lock_has_one_version_of_each_package_for_every_python(installer: ModuleType) -> None:
    """pip takes the entries as constraints, and evaluates their markers for the Python that it runs with."""
    entries = [Requirement(line) for line in installer.without_hashes(LOCK).splitlines()]
    for python in SUPPORTED:
        environment = {"python_version": python, "python_full_version": f"{python}.0"}
        names = [one.name for one in entries if one.marker is None or one.marker.evaluate(environment)]
        assert len(names) == len(set(names)) > 100
    assert {f"Programming Language :: Python :: {python}" for python in SUPPORTED} <= {*CLASSIFIERS}


def test_the_lock_has_what_the_project_asks_for_and_the_check_names_what_it_has_not(checker: ModuleType) -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    assert checker.missing(LOCK, project) == []
    project["dependencies"] += ["no-such-package>=1", "typer>=9999"]
    wrong = checker.missing(LOCK, project)
    assert wrong[0] == "no-such-package>=1 (locked: nothing)"
    assert wrong[1].startswith("typer>=9999 (locked: 0.")


def test_a_vulnerability_is_excused_only_with_a_reason(checker: ModuleType) -> None:
    checker.excuses((PROJECT / ".ci/vulnerabilities.toml").read_text("utf-8"))
    assert checker.excuses('[[excused]]\nid = "GHSA-1"\nreason = "not reached"') == {"GHSA-1": "not reached"}
    with pytest.raises(ValueError, match="no reason is given for GHSA-1"):
        checker.excuses('[[excused]]\nid = "GHSA-1"\nreason = " "')


def test_a_locked_version_with_an_advisory_is_found_unless_it_is_excused(
    checker: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "vulns/yarl").mkdir(parents=True)
    events = [{"introduced": "0"}, {"fixed": "1.5"}, {"introduced": "2"}, {"fixed": "2.1"}]
    package = {
        "package": {"name": "yarl", "ecosystem": "PyPI"},
        "ranges": [{"type": "ECOSYSTEM", "events": events}],
        "versions": ["1.9.post1"],
    }
    advisory = {"id": "PYSEC-1", "modified": "2026-01-02T03:04:05Z", "aliases": ["CVE-1"], "affected": [package]}
    (tmp_path / "vulns/yarl/PYSEC-1.yaml").write_text(yaml.safe_dump(advisory))

    def code(version: str, **excused: str) -> int:
        return int(checker.look_up(f"yarl=={version} \\\n    --hash=sha256:0\n", tmp_path, excused))

    assert [code(version) for version in ("1.4", "1.5", "1.9.post1", "2.0.1", "2.1")] == [1, 0, 1, 1, 0]
    assert "yarl 2.0.1 has CVE-1, PYSEC-1" in capsys.readouterr().err
    assert code("1.4", **{"CVE-1": "not reached"}) == 0
    assert code("2.1") == 0 and "the newest of 2026-01-02" in capsys.readouterr().out
    assert checker.look_up("yarl==1\n", tmp_path / "none", {}) == 2


def test_uv_asks_the_index_that_pip_is_configured_with(installer: ModuleType) -> None:
    configured = (
        ":env:.index-url='https://mine.test/simple'\n"
        "global.cert='/etc/ssl/ca.pem'\n"
        "global.extra-index-url='\\nhttps://one.test/simple\\nhttps://two.test/simple'\n"
        "global.find-links='/srv/wheels /opt/wheels'\n"
        "global.index-url='https://theirs.test/simple'\n"
        "global.timeout='180'\n"
        "install.no-index='true'\n"
    )
    assert installer.uv_environment(configured, {"UV_HTTP_TIMEOUT": "7", "HOME": "/root"}) == {
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_DEFAULT_INDEX": "https://mine.test/simple",
        "UV_INDEX": "https://one.test/simple https://two.test/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": "/srv/wheels,/opt/wheels",
        "SSL_CERT_FILE": "/etc/ssl/ca.pem",
        "UV_HTTP_TIMEOUT": "7",
        "UV_NO_INDEX": "1",
    }
    assert installer.uv_environment("", {}) == {"UV_PYTHON_DOWNLOADS": "never"}


def test_uv_is_installed_by_its_hashes(installer: ModuleType) -> None:
    entry = installer.locked("uv", LOCK)
    assert re.fullmatch(r"uv==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+\n", entry)


@pytest.mark.parametrize(("target", "wanted", "unwanted"), [("demo", "slapd", "chromium"), ("test", "chromium", "\0")])
def test_a_target_asks_for_the_packages_of_its_group(tmp_path: Path, target: str, wanted: str, unwanted: str) -> None:
    """On a machine where nothing is installed, by somebody who may not install."""
    for name, script in {"dpkg-query": "exit 1", "id": "echo 1000"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHON": sys.executable}
    done = subprocess.run([PROJECT / ".ci/packages", target], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert wanted in done.stderr.split()
    assert unwanted not in done.stderr.split()


class Machine:
    """A machine on which a package is missing, and whose apt-get answers as a test says."""

    def __init__(self, folder: Path, apt_get: str, debconf: str = ":") -> None:
        self.folder = folder
        for name, script in {
            "dpkg-query": "exit 1",
            "id": "echo 0",
            "apt-get": apt_get,
            "debconf-set-selections": debconf,
        }.items():
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)

    def packages(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """Install the packages of the demo."""
        given = {"PATH": f"{self.folder}:{os.environ['PATH']}", "PYTHON": sys.executable, "APT_PAUSE": "0"}
        given["POLICY_RC_D"] = str(self.folder / "policy-rc.d")
        command = [PROJECT / ".ci/packages", "demo"]
        return subprocess.run(command, env=os.environ | given | environment, capture_output=True, text=True)


LOCKS = (
    "/var/lib/dpkg/lock-frontend. It is held by process 812 (unattended-upgr)",
    "/var/lib/apt/lists/lock. It is held by process 99 (apt-get)",
    "/var/cache/apt/archives/lock. It is held by process 7 (packagekitd)",
)


@pytest.mark.parametrize("lock", LOCKS)
def test_the_set_up_waits_for_the_lock_of_another_program_and_names_it(tmp_path: Path, lock: str) -> None:
    told = tmp_path / "calls"
    machine = Machine(
        tmp_path,
        f'echo x >>{told}; [ $(wc -l <{told}) -gt 3 ] || {{ echo "E: Could not get lock {lock}" >&2; exit 100; }}',
    )
    done = machine.packages()
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Waiting up to 300 s for apt's lock") == 1 and lock.partition("It is ")[2] in done.stderr
    assert not (tmp_path / "policy-rc.d").exists()


@pytest.mark.parametrize(
    "said",
    [
        "E: Could not get lock /var/lib/dpkg/lock-frontend - open (11: Resource temporarily unavailable)",
        "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), is another process using it?",
        "E: Unable to lock directory /var/lib/apt/lists/",
    ],
)
def test_a_lock_whose_holder_is_unknown_is_waited_for_with_one_line(tmp_path: Path, said: str) -> None:
    told = tmp_path / "calls"
    machine = Machine(tmp_path, f'echo x >>{told}; [ $(wc -l <{told}) -gt 5 ] || {{ echo "{said}" >&2; exit 100; }}')
    done = machine.packages()
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Waiting up to 300 s for apt's lock, which is held by an unknown process") == 1


@pytest.mark.parametrize("program", ["apt_get", "debconf"])
@pytest.mark.parametrize("data", ["config", "templates"])
def test_the_set_up_waits_for_the_lock_of_debconf(tmp_path: Path, program: str, data: str) -> None:
    """Without the answer that debconf keeps, the package of slapd would set up a server of its own."""
    told, answers = tmp_path / "calls", tmp_path / "answers"
    lock = (
        f'debconf: DbDriver "{data}": /var/cache/debconf/{data}.dat is locked by another process: Resource temporarily'
    )
    locked = f"echo x >>{told}; [ $(wc -l <{told}) -gt 3 ] || {{ echo '{lock}' >&2; exit 1; }}"
    scripts = {"apt_get": "exit 0", "debconf": f"cat >>{answers}"} | {program: locked}
    if program == "debconf":
        scripts["debconf"] += f"; cat >>{answers}"
    done = Machine(tmp_path, **scripts).packages()
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Waiting up to 300 s") == 1
    assert answers.read_text() == "slapd slapd/no_configuration boolean true\n"


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("E: Could not get lock /var/lib/dpkg/lock. It is held by process 1 (dpkg)", "still taken after 0 s"),
        ("E: Failed to fetch http://deb.debian.org/ Temporary failure resolving", "check the network"),
        ("E: You don't have enough free space in /var/cache/apt/archives/.", "free some space"),
        ("E: Unable to locate package slapd", "sources.list"),
        ("E: Broken packages", "apt says above"),
        (
            "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock), are you root?",
            "run this as root",
        ),
        ("E: Could not open lock file /var/lib/dpkg/lock - open (30: Read-only file system)", "can be written"),
        ("E: dpkg was interrupted, run 'dpkg --configure -a' to correct the problem.", "apt says above"),
    ],
)
def test_a_step_of_the_set_up_that_fails_is_named_with_what_to_do(tmp_path: Path, said: str, advice: str) -> None:
    done = Machine(tmp_path, f'echo "{said}" >&2; exit 100').packages(APT_PATIENCE="0")
    assert done.returncode != 0
    assert "The step 'Debian packages' failed" in done.stderr and advice in done.stderr


def test_a_name_of_pyenv_that_does_not_run_is_found_among_its_versions(tmp_path: Path) -> None:
    """pyenv puts the names of all its versions on PATH, and those that are not chosen fail."""
    asked = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    (tmp_path / "prefix/bin").mkdir(parents=True)
    (tmp_path / "prefix/bin/python").symlink_to(sys.executable)
    for name, script in {asked: "exit 127", "pyenv": f"echo {tmp_path}/prefix"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    def told(*words: str) -> list[str]:
        environment = os.environ | {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        return subprocess.check_output([PROJECT / ".ci/python", *words], env=environment, text=True).split()

    assert told(asked)[0] in (sys.executable, f"{tmp_path}/prefix/bin/python")
    assert told(sys.executable)[0] == sys.executable
    assert len(told("--all")) >= 1
    assert told("no-such-python") == ["no-such-python", ".venv"]


def test_each_python_has_a_virtual_environment_of_its_own(tmp_path: Path) -> None:
    for version in ("3.11", "3.13"):
        (tmp_path / f"python{version}").write_text(f"#!/bin/sh\necho {tmp_path}/python{version} {version}\n")
        (tmp_path / f"python{version}").chmod(0o755)
    words = ["make", "--no-print-directory", "--dry-run", "lint"]
    given_here = ("PYTHON", "MAKEFLAGS", "MAKEOVERRIDES")  # of the make that runs the tests
    environment = {name: value for name, value in os.environ.items() if name not in given_here}
    environment["PATH"] = f"{tmp_path}:/usr/bin:/bin"
    for python, folder in ((None, ".venv"), ("python3.11", ".venv"), ("python3.13", ".venv-3.13")):
        given = [f"PYTHON={python}"] if python else []
        done = subprocess.check_output([*words, *given], cwd=PROJECT, env=environment, text=True)
        assert f"\n{folder}/bin/ruff check ." in "\n" + done


@pytest.mark.parametrize(("python", "advice"), [("no-such-python", "there is no"), ("old-python", "is Python 3.9")])
def test_another_python_is_named_with_what_to_do(tmp_path: Path, python: str, advice: str) -> None:
    machine = Machine(tmp_path, "exit 0")
    if python == "old-python":
        (tmp_path / python).write_text("#!/bin/sh\necho 3.9\n")
        (tmp_path / python).chmod(0o755)
    done = machine.packages(PYTHON=python)
    assert done.returncode == 1 and "The step 'Python' failed" in done.stderr and advice in done.stderr


def test_python_packages_that_cannot_be_installed_end_with_the_step_and_what_to_do(installer: ModuleType) -> None:
    for step, advice in (("Python packages", "mirror"), ("virtual environment", "python3.1")):
        said = installer.failure(step)
        assert f"The step '{step}' failed" in said and (advice in said or "free some space" in said)


def test_a_target_prints_how_long_it_took_and_that_the_machine_was_not_quiet() -> None:
    clock = PROJECT / ".ci/clock"
    began, total, idle, stolen = map(int, subprocess.run([clock], capture_output=True, text=True).stdout.split())
    assert total > idle >= 0 <= stolen
    mark = f"{began - 125} {total - 100000} {idle} {stolen - 30000}"  # since then no processor was idle
    said = subprocess.run([clock, mark, "make test", str(os.getpid())], capture_output=True, text=True).stdout
    assert re.match(r"-- make test: 2 min 0[5-9] s \(not quiet: \d+ % of the processors went to other programs", said)
    assert re.search(r"(30|2\d) % were stolen by other machines", said)
    assert said.endswith("), processors idle for 0 %\n")
