"""The recipe of the Linux packages: what it packs, and what its scripts do to a machine. The roots try the rest."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from qmnode.settings.node import read_settings

PROJECT = Path(__file__).resolve().parents[2]
RECIPE = PROJECT / "packaging/linux"


@pytest.fixture(scope="module")
def recipe() -> ModuleType:
    specification = importlib.util.spec_from_file_location("linux_packages", RECIPE / "build.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["linux_packages"] = module
    specification.loader.exec_module(module)
    return module


def tree(recipe: ModuleType, root: Path, release: Any) -> Path:
    """The node's tree with nothing but its own programs in the environment."""
    home = root / "opt/qmnode"
    place = home / f"lib/python{release.python}/site-packages"
    information = place / "qmnode-0.1.0.dist-info"
    information.mkdir(parents=True)
    (information / "entry_points.txt").write_text("[console_scripts]\nqmnode = qmnode.cli:main\n")
    recipe.skeleton(home, release)
    recipe.launchers(home, place, "/opt/qmnode")
    recipe.files(root, recipe.PACKAGES[0], PROJECT)
    return root


def node_package(recipe: ModuleType, root: Path, out: Path) -> Path:
    release = recipe.DEBIAN[1]
    out.mkdir()
    made: Path = recipe.deb(tree(recipe, root, release), recipe.PACKAGES[0], release, "1.2.3", "1", out)
    return made


def told(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_package_is_of_root_names_its_settings_and_has_the_same_bytes_twice(
    recipe: ModuleType, tmp_path: Path
) -> None:
    first, second = (node_package(recipe, tmp_path / name, tmp_path / f"{name}.out") for name in ("one", "other"))
    assert first.read_bytes() == second.read_bytes()
    assert first.name.startswith("qmnode_1.2.3-1+deb13_")

    listed = {line.split()[5]: line.split()[:2] for line in told("dpkg-deb", "--contents", first).splitlines()}
    assert {owner for _, owner in listed.values()} == {"root/root"}
    assert listed["./opt/qmnode/bin/qmnode"][0] == "-rwxr-xr-x"
    assert listed["./usr/share/man/man1/qmnode-queue.1.gz"][0] == "-rw-r--r--"
    assert {"./usr/bin/qmnode", "./usr/lib/systemd/system/qmnode.service"} <= set(listed)
    assert "./usr/lib/ocf/resource.d/qmnode/qmnode" in listed
    assert not [name for name in listed if "mqenterprise" in name]

    depends = told("dpkg-deb", "--field", first, "Depends")
    assert "python3 (>= 3.13), python3 (<< 3.14)" in depends
    assert told("dpkg-deb", "--info", first, "conffiles") == "/etc/qmnode/node.yaml\n"


def test_every_script_is_whole_and_can_be_read_by_a_shell(recipe: ModuleType) -> None:
    for package in recipe.PACKAGES:
        for name in ("postinst", "prerm", "postrm"):
            text = recipe.script(package, name)
            assert "@" not in text
            checked = subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True)
            assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(("word", "kept"), [("true", False), ("false", True)])
def test_a_purge_deletes_messages_only_with_a_word(recipe: ModuleType, tmp_path: Path, word: str, kept: bool) -> None:
    message = tmp_path / "var/lib/qmnode/000004.log"
    message.parent.mkdir(parents=True)
    message.write_text("order 7")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("deb-systemd-helper", "deluser"):
        (programs / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{tmp_path}/calls\n')
        (programs / name).chmod(0o755)
    debconf = tmp_path / "usr/share/debconf/confmodule"
    debconf.parent.mkdir(parents=True)
    stubs = "".join(f"db_{name}() {{ :; }}\n" for name in ("version", "input", "go", "purge"))
    debconf.write_text(f"{stubs}db_get() {{ RET={word}; }}\n")
    text = recipe.script(recipe.PACKAGES[0], "postrm")
    for folder in ("/var/", "/etc/", "/usr/share/"):
        text = text.replace(f" {folder}", f" {tmp_path}{folder}")

    done = subprocess.run(
        ["/bin/sh", "-c", text, "postrm", "purge"],
        env={"PATH": f"{programs}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert message.exists() is kept
    assert ("deluser" in (tmp_path / "calls").read_text()) is not kept
    assert ("are kept" in done.stderr) is kept


@pytest.mark.parametrize(
    ("action", "state", "stays"),
    [
        ("upgrade", "inactive", True),
        ("upgrade", "activating", False),
        ("upgrade", "active", False),
        ("remove", "inactive", False),
    ],
)
def test_only_a_node_that_was_stopped_stays_so_when_it_is_upgraded(
    recipe: ModuleType, tmp_path: Path, action: str, state: str, stays: bool
) -> None:
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "systemctl").write_text(f"#!/bin/sh\necho {state}\n[ {state} = active ]\n")
    (programs / "deb-systemd-invoke").write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/calls\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    text = recipe.script(recipe.PACKAGES[0], "prerm").replace("/run/", f"{tmp_path}/run/")

    subprocess.run(["/bin/sh", "-c", text, "prerm", action], env={"PATH": f"{programs}:/usr/bin:/bin"}, check=True)
    assert (tmp_path / "run/qmnode-stays-stopped").exists() is stays
    assert (tmp_path / "calls").read_text() == "stop qmnode.service\n"


@pytest.mark.parametrize("number", [0, 1])
def test_an_rpm_takes_its_compiled_modules_along_when_it_is_removed_and_not_when_it_is_upgraded(
    recipe: ModuleType, tmp_path: Path, number: int
) -> None:
    compiled = tmp_path / "lib/python3.11/site-packages/qmnode/__pycache__/cli.cpython-311.pyc"
    for package in recipe.PACKAGES:
        compiled.parent.mkdir(parents=True, exist_ok=True)
        compiled.touch()
        written = recipe.spec(tmp_path / "tree", package, recipe.RPM, "1.2.3", "1")
        script = re.search(r"(?ms)^%preun\n(.*?)(?=^%|\Z)", written)[1]  # type: ignore[index]
        for folder, own in ((f"/opt/{package.name}/lib", "lib"), ("/usr/share", "share"), ("/run/systemd", "no")):
            script = script.replace(folder, str(tmp_path / own))
        subprocess.run(["/bin/sh", "-c", script, "preun", str(number)], check=True)
        assert compiled.exists() is (number == 1)


def test_the_packaged_settings_are_those_that_the_unit_and_the_commands_expect(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("QMNODE_SOCKET", "QMNODE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    settings = read_settings(RECIPE / "node.yaml")
    assert settings.data == Path("/var/lib/qmnode")
    assert settings.local.socket == Path("/run/qmnode/qmnode.sock")
    assert settings.management.socket == Path("/run/qmnode/management.sock")


@pytest.mark.soak
def test_an_rpm_is_built_and_unpacked(recipe: ModuleType, tmp_path: Path) -> None:
    if shutil.which("rpmbuild") is None:
        pytest.skip("rpmbuild is not installed (package rpm)")
    made = recipe.rpm(
        tree(recipe, tmp_path / "tree", recipe.RPM), recipe.PACKAGES[0], recipe.RPM, "1.2.3", "1", tmp_path
    )
    assert "python3.11" in told("rpm", "--query", "--package", "--requires", made).splitlines()
    assert told("rpm", "--query", "--package", "--configfiles", made) == "/etc/qmnode/node.yaml\n"
    assert "useradd -r -g qmnode" in told("rpm", "--query", "--package", "--scripts", made)
    root = tmp_path / "root"
    root.mkdir()
    told("rpm", "--root", root, "--install", "--nodeps", "--noscripts", "--nofiledigest", made)
    assert (root / "usr/bin/qmnode").readlink() == Path("/opt/qmnode/bin/qmnode")
    assert (root / "opt/qmnode/bin/qmnode").read_text().startswith("#!/opt/qmnode/bin/python3\n")
    assert (root / "usr/lib/systemd/system/qmnode.service").exists()


def test_the_c_library_is_packed_with_what_compiling_needs_apart(recipe: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    packed = recipe.library(PROJECT, "1.2.3", "1", tmp_path / "out")
    assert [path.name.partition("_")[0] for path in packed] == ["libmqrt1", "libmqrt-dev"]
    root = tmp_path / "root"
    for path in packed:
        told("dpkg-deb", "--extract", path, root)
    assert "libjansson4" in told("dpkg-deb", "--field", packed[0], "Depends")
    assert "libmqrt1 (= 1.2.3-1)" in told("dpkg-deb", "--field", packed[1], "Depends")
    assert "/include/" not in told("dpkg-deb", "--contents", packed[0])
    libraries = next((root / "usr/lib").iterdir())
    description = (libraries / "pkgconfig/mqrt.pc").read_text("utf-8")
    assert f"libdir=/usr/lib/{libraries.name}\n" in description
    assert "includedir=/usr/include/mqrt\n" in description
    program = tmp_path / "orders"
    example = root / "usr/share/doc/libmqrt-dev/examples/orders.c"
    told("gcc", example, f"-I{root}/usr/include/mqrt", f"-L{libraries}", "-lmqrt", "-pthread", "-o", program)
    assert "libmqrt.so.1" in told("readelf", "-d", program)
    assert {path.name for path in libraries.glob("*.so*")} == {"libmqrt.so", "libmqrt.so.1", "libmqrt-windows.so.1"}
