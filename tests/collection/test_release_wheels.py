"""The wheels of a release: with the optional extras where they can be had, and for every kind of host."""

import hashlib
import importlib.util
import shlex
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest
from packaging.utils import parse_wheel_filename

PROJECT = Path(__file__).resolve().parents[2]
MODULE = PROJECT / "playbooks/collections/ansible_collections/mqenterprise/fleet/plugins/modules/release.py"


@pytest.fixture(scope="module")
def release() -> ModuleType:
    return loaded(MODULE)


def loaded(path: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


UNCHECKED = 1
"""Flags of what is compiled and never compared with its source (PEP 552)."""


class FakeModule:
    """An Ansible module whose pip finds no wheel of what is missing."""

    check_mode = False

    def __init__(self, missing: str) -> None:
        self.params = {"extras": ["enterprise"], "optional_extras": ["uvloop"]}
        self.missing = missing
        self.asked: list[str] = []
        self.commands: list[list[str]] = []
        self.warnings: list[str] = []
        self.compiled: list[str] = []

    def run_command(self, command: list[str]) -> tuple[int, str, str]:
        if command[1] == "-c":
            return subprocess.run(command, check=False).returncode, "", ""
        if "--no-deps" in command:
            self.compiled += command[command.index("--no-deps") + 1 :]
            self.missing = ""
            Path(command[command.index("--wheel-dir") + 1], "compiled-1-cp313-cp313-linux_x86_64.whl").touch()
            return 0, "", ""
        self.asked.append(command[-1])
        self.commands.append(command)
        failed = bool(self.missing) and self.missing in command[-1]
        if not failed and "--dest" in command:
            Path(command[command.index("--dest") + 1], "some-1-cp313-cp313-manylinux_2_28_x86_64.whl").touch()
        return int(failed), f"The user requested (constraint) {self.missing}==1" if failed else "", ""

    def fail_json(self, msg: str) -> NoReturn:
        raise AssertionError(msg)

    def warn(self, sentence: str) -> None:
        self.warnings.append(sentence)


@pytest.mark.parametrize(
    ("missing", "asked", "outcome", "warnings"),
    [
        ("", ["/src[enterprise,uvloop]"], 0, 0),
        ("uvloop", ["/src[enterprise,uvloop]", "/src[enterprise]"], 0, 1),
        ("enterprise", ["/src[enterprise,uvloop]", "/src[enterprise]"], 1, 0),
    ],
)
def test_an_optional_extra_without_a_wheel_is_left_out(
    release: ModuleType, missing: str, asked: list[str], outcome: int, warnings: int
) -> None:
    module = FakeModule(missing)

    code, _ = release.make_wheels(module, ["pip"], Path("/src"))

    assert module.asked == asked
    assert (code, len(module.warnings)) == (outcome, warnings)


@pytest.mark.parametrize(
    ("target", "fit"),
    [
        ("3.11 x86_64 glibc 2.36", True),
        ("3.11 x86_64 glibc 2.41", True),
        ("3.11 x86_64 glibc 2.31", False),
        ("3.13 x86_64 glibc 2.36", False),
        ("3.11 aarch64 glibc 2.36", False),
        ("3.11 x86_64 musl", False),
    ],
)
def test_what_the_controller_builds_fits_its_own_kind_of_host(release: ModuleType, target: str, fit: bool) -> None:
    assert release.fits("3.11 x86_64 glibc 2.36", target) is fit


def test_pip_is_asked_for_wheels_that_the_host_can_have(release: ModuleType) -> None:
    for target, has, lacks in (
        (
            "3.13 x86_64 glibc 2.36",
            ["cp313", "abi3", "manylinux_2_36_x86_64", "manylinux2014_x86_64"],
            "manylinux_2_37",
        ),
        ("3.12 aarch64 musl", ["cp312", "musllinux_1_2_aarch64"], "manylinux"),
    ):
        options = release.chosen_for(target)
        assert set(has) < set(options) and lacks not in shlex.join(options)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The archive that the controller has built, with a wheel of the project."""
    archive, wheel = tmp_path / "1-a.tar", tmp_path / "qmnode-1-py3-none-any.whl"
    wheel.touch()
    with tarfile.open(archive, "w") as file:
        file.add(wheel, f"wheels/{wheel.name}")
    (tmp_path / "wheels").mkdir()
    return archive


def test_another_kind_of_host_gets_an_archive_of_its_own_once(release: ModuleType, own: Path) -> None:
    module = FakeModule("")

    def made(target: str) -> tuple[dict[str, str], bool]:
        answer: tuple[dict[str, str], bool] = release.archive_for(module, "qmnode", None, target, own)
        return answer

    same, is_new = made(release.own_target())
    assert (same["archive"], is_new, module.commands) == (str(own), False, [])
    other, is_new = made("2.7 x86_64 glibc 2.17")
    assert (Path(other["archive"]).name, is_new) == ("1-a-2.7-x86_64-glibc-2.17.tar", True)
    with tarfile.open(other["archive"]) as packed:
        assert packed.getnames() == ["wheels/some-1-cp313-cp313-manylinux_2_28_x86_64.whl"]
    assert other["checksum"] and made("2.7 x86_64 glibc 2.17") == (other, False)
    assert len(module.commands) == 1


def test_a_host_without_wheels_has_the_reason_and_no_archive(release: ModuleType, own: Path) -> None:
    module = FakeModule("enterprise")
    answer, is_new = release.archive_for(module, "qmnode", None, "3.9 armv7l glibc 2.31", own)
    assert not is_new and not Path(answer["archive"]).exists()
    assert "for its Python 3.9 on armv7l glibc 2.31, none of enterprise" in answer["problem"]
    with pytest.raises(AssertionError, match="is no target"):
        release.archive_for(module, "qmnode", None, "3.9", own)


class PipModule(FakeModule):
    """An Ansible module whose pip is the real one."""

    def run_command(self, command: list[str]) -> tuple[int, str, str]:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_hosts_of_another_architecture_can_have_a_release(release: ModuleType, tmp_path: Path) -> None:
    """All of its wheels are whole, and each fits: none of such hosts is here to install them."""
    module, own, lock = PipModule(""), tmp_path / "1-a.tar", PROJECT / "requirements.lock"
    release.build(module, PROJECT, "qmnode", lock, own)
    for machine in ("aarch64", "x86_64"):
        answer, is_new = release.archive_for(module, "qmnode", lock, f"3.13 {machine} glibc 2.36", own)
        assert (answer["problem"], is_new) == ("", True)
        with tarfile.open(answer["archive"]) as packed:
            packed.extractall(tmp_path / machine, filter="data")
        wheels = sorted((tmp_path / machine / "wheels").iterdir())
        assert {"qmnode", "pip", "rocksdict"} <= {wheel.name.partition("-")[0] for wheel in wheels}
        compiled = 0
        for wheel in wheels:
            assert zipfile.ZipFile(wheel).testzip() is None
            platforms = {tag.platform for tag in parse_wheel_filename(wheel.name)[3]}
            assert platforms == {"any"} or all(name.endswith(machine) for name in platforms), wheel.name
            compiled += platforms != {"any"}
        assert compiled > 3


def wheel(folder: Path, name: str, files: dict[str, bytes]) -> Path:
    """A wheel with these files, whatever its own metadata says of them."""
    folder.mkdir(exist_ok=True)
    made = folder / f"{name}-py3-none-any.whl"
    files = {f"{name}.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n", **files}
    record = "".join(f"{path},sha256={hashlib.sha256(files[path]).hexdigest()},{len(files[path])}\n" for path in files)
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as packed:
        for path, content in files.items():
            packed.writestr(path, content)
        packed.writestr(f"{name}.dist-info/RECORD", f"{record}{name}.dist-info/RECORD,,\n")
    return made


def tool(folder: Path, name: str) -> None:
    """The wheel of a package that is installed here."""
    known = distribution(name)
    paths = [path for path in known.files or () if path.parts[0] == name and path.suffix != ".pyc"]
    wheel(folder, f"{name}-{known.version}", {str(path): path.read_binary() for path in paths})


class Sent:
    """A release of one small package, for this Python or for another one, which has pip and nothing compiled."""

    def __init__(self, release: ModuleType, folder: Path, *, ours: bool) -> None:
        self.release, self.folder = release, folder
        self.target = folder / "releases/1"
        self.wheels = folder / "wheels"
        about = "small-1.dist-info"
        files = {
            "small/__init__.py": b"def main():\n    print('it runs')\n",
            "small/words.txt": b"many words " * 1000,
            f"{about}/METADATA": b"Metadata-Version: 2.1\nName: small\nVersion: 1\n",
            f"{about}/entry_points.txt": b"[console_scripts]\nsmall = small:main\n",
        }
        self.wheel = wheel(self.wheels, "small-1", files)
        tool(self.wheels, "installer")
        if ours:
            release.add_compiled(self.wheels, "small", folder / "tree")
        else:
            tool(self.wheels, "pip")

    def install(self) -> subprocess.CompletedProcess[str]:
        archive = self.folder / "1.tar"
        self.release.pack(self.wheels, archive)
        program = MODULE.parents[2] / "roles/queue_manager/files/install.py"
        command = [sys.executable, program, self.target.parent, "1", self.release.checksum_of(archive)]
        with archive.open("rb") as given:
            return subprocess.run(command, stdin=given, capture_output=True, text=True, check=False)

    def pip(self, *words: str) -> str:
        command = [sys.executable, "-m", "pip", "--python", self.target / "bin/python", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("ours", [True, False], ids=["its Python", "another Python"])
def test_a_release_is_installed_as_pip_installs_it(release: ModuleType, tmp_path: Path, ours: bool) -> None:
    sent = Sent(release, tmp_path, ours=ours)

    done = sent.install()

    assert done.returncode == 0, done.stderr
    assert subprocess.check_output([sent.target / "bin/small"], text=True) == "it runs\n"
    (packages,) = sent.target.glob("lib/python3*/site-packages")
    compiled = Path(importlib.util.cache_from_source(str(packages / "small/__init__.py"))).read_bytes()
    assert (int.from_bytes(compiled[4:8], "little") == UNCHECKED) is ours
    assert (sent.target / ".complete").exists() and not list(packages.glob("installer*"))
    if not ours:
        return  # it was checked by pip
    assert sent.pip("check") == "No broken requirements found.\n"
    sent.pip("uninstall", "--yes", "small")
    assert not (packages / "small/words.txt").exists() and not (sent.target / "bin/small").exists()
    assert not list(packages.glob("small-*"))


@pytest.mark.parametrize(
    "fault", ["bytes", "a file that it does not name", "nothing in it", "what it needs is missing"]
)
def test_a_damaged_wheel_is_refused_and_nothing_is_left(release: ModuleType, tmp_path: Path, fault: str) -> None:
    sent = Sent(release, tmp_path, ours=fault != "what it needs is missing")
    match fault:
        case "bytes":
            content = bytearray(sent.wheel.read_bytes())
            place = content.index(b"small/words.txt") + 40
            content[place : place + 4] = b"\xff\x00\xff\x00"
            sent.wheel.write_bytes(content)
        case "a file that it does not name":
            with zipfile.ZipFile(sent.wheel, "a") as packed:
                packed.writestr("evil.py", "")
        case "nothing in it":
            sent.wheel.write_bytes(b"PK")
        case _:
            needy = {
                "needy-1.dist-info/METADATA": b"Metadata-Version: 2.1\nName: needy\nVersion: 1\nRequires-Dist: gone\n"
            }
            wheel(sent.wheels, "needy-1", needy)

    done = sent.install()

    assert done.returncode != 0 and "the release cannot be installed in" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert list(sent.target.parent.iterdir()) == []


def test_of_several_pythons_the_first_is_taken_that_the_host_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(PROJECT / "playbooks/collections"), *sys.path])
    first_of = loaded(MODULE.parents[1] / "action/script.py").first_of

    for names, runs in (
        (["no-such-python", sys.executable, "false"], True),
        ([sys.executable], True),
        (["no-such-python", "nor such"], False),
    ):
        done = subprocess.run(["/bin/sh", "-c", f"{first_of(names)} -c 'print(1)'"], capture_output=True, text=True)
        assert (done.stdout == "1\n") is runs, done.stderr


def test_a_host_is_asked_for_what_its_wheels_have_to_fit(release: ModuleType, tmp_path: Path) -> None:
    look = MODULE.parents[2] / "roles/queue_manager/files/look.py"
    words = [sys.executable, look, *(tmp_path / name for name in ("install", "data", "settings", "pid", "socket"))]
    found = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert f'"target": "{release.own_target()}"' in found


def test_what_has_no_wheel_is_compiled_for_another_python_that_the_controller_has(
    release: ModuleType, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python2.7").symlink_to("/bin/true")
    (tmp_path / "python2.6").symlink_to("/bin/false")
    monkeypatch.setenv("PATH", str(tmp_path))
    kind = release.own_target().split(" ", 1)[1]
    for target, compiled in (
        (f"2.7 {kind}", ["enterprise"]),
        (f"2.6 {kind}", []),  # a name that does not run
        (f"2.5 {kind}", []),  # not there
        ("2.7 armv7l glibc 2.31", []),
        (f"2.7 {kind.partition(' ')[0]} glibc 2.5", []),  # older than what it would be linked with
    ):
        module = FakeModule("enterprise")
        answer, _ = release.archive_for(module, "qmnode", None, target, own)
        assert module.compiled == compiled
        assert bool(answer["problem"]) == (not compiled)
        assert ("linux_" + kind.split()[0] in release.platforms_of(target)) == target.endswith(kind)
        if compiled:
            with tarfile.open(answer["archive"]) as packed:
                assert "wheels/compiled-1-cp313-cp313-linux_x86_64.whl" in packed.getnames()
