"""Build the packages of node, toolkit and C library for Debian, and the first two for RPM: ``build.py --out dist``.

Each has a virtual environment of its own under ``/opt``, with the versions of ``requirements.lock``, for the Python of
the release that it is made for. Wheels are chosen for that Python: any machine builds for all releases, and nobody
needs to be root. The same sources give the same bytes. The C library is compiled here: its packages are for the release
that this machine has, and later ones.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib.machinery
import importlib.util
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import tomllib
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
MAINTAINER = "The qmnode authors"
PIP = "pip"
"""What the roll-out builds releases with."""
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "requirements.lock", "qmnode", "mqenterprise", "man")
"""What the roll-out builds a node's release from."""
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
SHELLS = {
    "bash": "usr/share/bash-completion/completions/{program}",
    "zsh": "usr/share/zsh/vendor-completions/_{program}",
    "fish": "usr/share/fish/vendor_completions.d/{program}.fish",
}


@dataclass(frozen=True)
class Release:
    """A release of a distribution, and the Python that it has."""

    name: str
    python: str
    glibc: str


LIBRARY = "libmqrt1"
HEADERS = "libmqrt-dev"
LIBRARY_ABOUT = """\
The documented functions of mqrt.dll for programs on Linux beside a node:
System.Messaging under Mono or .NET, and programs in C."""

DEBIAN = (Release("deb12", "3.11", "2_36"), Release("deb13", "3.13", "2_40"))
SCRIPTS = ("preinst", "postinst", "prerm", "postrm", "templates")
RPM = Release("el9", "3.11", "2_34")


@dataclass(frozen=True)
class Package:
    """One package: which program it brings, with which extras."""

    name: str
    extras: tuple[str, ...]
    more: tuple[str, ...]
    depends: tuple[str, ...]
    recommends: str
    summary: str
    description: str


PACKAGES = (
    Package(
        "qmnode",
        ("enterprise", "rpc", "uvloop"),
        (),
        ("adduser", "debconf (>= 0.5) | debconf-2.0", "init-system-helpers (>= 1.54)"),
        "",
        "Message Queuing (MSMQ) queue manager node",
        "A queue manager that speaks the binary protocol of MSMQ, keeps queues on disk and\n"
        "delivers transactional messages once and in order. It works alone or with a\n"
        "directory, and runs as the service qmnode.",
    ),
    Package(
        "mqenterprise",
        ("enterprise", "rollout", "rpc"),
        (PIP,),
        (),
        "openssh-client, slapd",
        "sites, queues and keys of Message Queuing (MSMQ) nodes",
        "The command mqenterprise, the Ansible playbooks and the console, which declare,\n"
        "roll out and watch many queue managers as one enterprise.",
    ),
)


def main() -> int:
    """Build what is asked for, and print each file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--source", type=Path, default=PROJECT, help="the project's sources")
    parser.add_argument("--out", type=Path, default=PROJECT / "dist", help="the folder for the packages")
    parser.add_argument("--revision", default="1", help="the revision of the packages")
    parser.add_argument(
        "--release", action="append", choices=[r.name for r in (*DEBIAN, RPM)], help="only this release"
    )
    names = [*(p.name for p in PACKAGES), LIBRARY]
    parser.add_argument("--package", action="append", choices=names, help="only this package")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    source = given.source.resolve()
    if not given.package or LIBRARY in given.package:
        for made in library(source, version_of(source), given.revision, given.out):
            print(made, flush=True)
    if given.package == [LIBRARY]:
        return 0
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(source, Path(folder))
        for release in (*DEBIAN, RPM):
            for package in PACKAGES:
                if given.release and release.name not in given.release:
                    continue
                if given.package and package.name not in given.package:
                    continue
                root = Path(folder, release.name, package.name)
                environment(root, package, release, wheel, source / "requirements.lock")
                files(root, package, source)
                make = rpm if release is RPM else deb
                print(make(root, package, release, version_of(source), given.revision, given.out), flush=True)
    return 0


def version_of(source: Path) -> str:
    """The project's version."""
    return str(tomllib.loads((source / "pyproject.toml").read_text("utf-8"))["project"]["version"])


def epoch() -> int:
    """The time that all files get, in seconds: SOURCE_DATE_EPOCH, or that of the last commit."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    told = subprocess.run(["git", "-C", PROJECT, "log", "-1", "--format=%ct"], capture_output=True, text=True)
    return int(told.stdout) if told.returncode == 0 else 1767225600


def installer_environment() -> dict[str, str]:
    """The environment in which uv asks the package index that pip is configured with."""
    loader = importlib.machinery.SourceFileLoader("installer", str(PROJECT / ".ci/install"))
    specification = importlib.util.spec_from_loader("installer", loader)
    assert specification is not None
    installer = importlib.util.module_from_spec(specification)
    loader.exec_module(installer)
    pip = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(pip, capture_output=True, text=True).stdout
    return os.environ | installer.uv_environment(listed, dict(os.environ)) | {"SOURCE_DATE_EPOCH": str(epoch())}


def uv(*arguments: str | Path) -> None:
    """Run uv, which stands beside this Python. SystemExit if it fails."""
    program = Path(sys.executable).with_name("uv")
    if not program.exists():
        raise SystemExit(f"{program} is not there: run this by make packages-linux, which installs uv")
    done = subprocess.run([program, *arguments, "--quiet"], env=installer_environment())
    if done.returncode:
        raise SystemExit(f"uv {arguments[0]} failed, see above: it needs a package index, or the wheels in its cache")


def build_wheel(source: Path, folder: Path) -> Path:
    """Build the project's wheel."""
    uv("build", "--wheel", "--out-dir", folder / "wheel", source)
    return next((folder / "wheel").glob("*.whl"))


def environment(root: Path, package: Package, release: Release, wheel: Path, lock: Path) -> None:
    """Lay out the virtual environment of a package below ``root``, as the release's own venv would have made it."""
    home = root / "opt" / package.name
    place = home / f"lib/python{release.python}/site-packages"
    machine = platform.machine()
    uv(
        # Copies: files that are linked to uv's cache would change while they are packed.
        *("pip", "install", "--link-mode", "copy", "--target", place, "--only-binary", ":all:", "--constraints", lock),
        *("--python-version", release.python, "--python-platform", f"{machine}-manylinux_{release.glibc}"),
        *(f"{wheel}[{','.join(package.extras)}]", *package.more),
    )
    skeleton(home, release)
    for info in sorted(place.glob("*.dist-info")):
        # Where and how it was installed is no fact of the package.
        for name in ("direct_url.json", "uv_cache.json", "uv_build.json", "RECORD", "REQUESTED"):
            (info / name).unlink(missing_ok=True)
    for name in (".lock", "bin", "share", "CACHEDIR.TAG", ".gitignore"):
        path = place / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for compiled in place.rglob("__pycache__"):
        shutil.rmtree(compiled)
    launchers(home, place, f"/opt/{package.name}")


def skeleton(home: Path, release: Release) -> None:
    """Make what tells a Python that this folder is its environment."""
    (home / "bin").mkdir(parents=True, exist_ok=True)
    (home / "bin/python3").symlink_to(f"/usr/bin/python{release.python}")
    (home / "bin/python").symlink_to("python3")
    (home / "pyvenv.cfg").write_text(
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {release.python}\n", "utf-8"
    )


def launchers(home: Path, place: Path, installed: str) -> None:
    """Write the programs of all packages of the environment, with its Python."""
    for entry_points in sorted(place.glob("*.dist-info/entry_points.txt")):
        declared = ConfigParser(delimiters="=", interpolation=None)
        declared.optionxform = str  # type: ignore[assignment,method-assign]
        declared.read(entry_points, "utf-8")
        for name, target in declared.items("console_scripts") if declared.has_section("console_scripts") else ():
            module, function = target.split("[")[0].strip().split(":")
            program = home / "bin" / name
            program.write_text(
                f"#!{installed}/bin/python3\nimport sys\nfrom {module} import {function.split('.')[0]}\n"
                f"sys.exit({function}())\n",
                "utf-8",
            )
            program.chmod(0o755)


def files(root: Path, package: Package, source: Path) -> None:
    """Lay out what a package has outside its environment."""
    name = package.name
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin" / name).symlink_to(f"/opt/{name}/bin/{name}")
    documents = root / "usr/share/doc" / name
    documents.mkdir(parents=True)
    shutil.copy(HERE / "copyright", documents / "copyright")
    compressed(documents / "changelog.gz", (source / "CHANGELOG.md").read_bytes())
    for page in sorted((source / "man").glob("*.1")) if (source / "man").exists() else ():
        if page.name.split("-")[0].removesuffix(".1") == name:
            compressed(root / "usr/share/man/man1" / f"{page.name}.gz", page.read_bytes())
    for shell, path in SHELLS.items():
        target = root / path.format(program=name)
        target.parent.mkdir(parents=True)
        target.write_text(completion(name, shell) + "\n", "utf-8")
    if name == "qmnode":
        unit = root / "usr/lib/systemd/system/qmnode.service"
        unit.parent.mkdir(parents=True)
        shutil.copy(source / "qmnode/systemd/qmnode.service", unit)
        agent = root / "usr/lib/ocf/resource.d/qmnode/qmnode"
        agent.parent.mkdir(parents=True)
        shutil.copy(source / "qmnode/systemd/qmnode.ocf", agent)
        agent.chmod(0o755)
        (root / "etc/qmnode").mkdir(parents=True)
        shutil.copy(HERE / "node.yaml", root / "etc/qmnode/node.yaml")
    else:
        shared = root / "usr/share/mqenterprise"
        for part in (*SOURCES, "schemas", "inventory", "playbooks"):
            copy(source / part, shared / part)


def completion(program: str, shell: str) -> str:
    """The script that ``--show-completion`` prints in this shell."""
    from typer._completion_shared import get_completion_script

    variable = f"_{program.upper()}_COMPLETE"
    return get_completion_script(prog_name=program, complete_var=variable, shell=shell)


def copy(source: Path, target: Path) -> None:
    """Copy a file or a folder without what a build or a run left there; nothing if it is not there."""
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", "node_modules", ".*"))
    elif source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def compressed(path: Path, content: bytes) -> None:
    """Write a file compressed, without name and time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, mtime=0))


def settle(root: Path) -> None:
    """Give every file the modes and the time that do not depend on who builds."""
    moment = epoch()
    for path in sorted(root.rglob("*"), reverse=True):
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(0o755 if path.is_dir() or mode & 0o100 else 0o644)
        os.utime(path, (moment, moment), follow_symlinks=False)
    os.utime(root, (moment, moment))


def script(package: Package, name: str) -> str:
    """A maintainer script; empty if the package has none."""
    path = HERE / f"{package.name}.{name}"
    if not path.exists():
        return ""
    part = HERE / f"environment.{name}"
    text = path.read_text("utf-8")
    return text.replace("@ENVIRONMENT@\n", part.read_text("utf-8") if part.exists() else "").replace(
        "@PACKAGE@", package.name
    )


def control(root: Path, package: Package, release: Release, version: str) -> str:
    """The package's control file."""
    major, minor = map(int, release.python.split("."))
    depends = [f"python3 (>= {release.python})", f"python3 (<< {major}.{minor + 1})", f"python{release.python}"]
    depends += [f"libc6 (>= {release.glibc.replace('_', '.')})", "libgcc-s1", "libstdc++6", *package.depends]
    size = sum(path.lstat().st_size for path in root.rglob("*") if path.is_file() and "DEBIAN" not in path.parts)
    description = "\n".join(f" {line}" for line in package.description.splitlines())
    lines = [
        f"Package: {package.name}",
        f"Version: {version}",
        f"Architecture: {MACHINES.get(platform.machine(), platform.machine())}",
        f"Maintainer: {MAINTAINER}",
        f"Installed-Size: {-(-size // 1024)}",
        f"Depends: {', '.join(depends)}",
        *([f"Recommends: {package.recommends}"] if package.recommends else []),
        "Section: net",
        "Priority: optional",
        f"Description: {package.summary}",
        description,
    ]
    return "\n".join(lines) + "\n"


def deb(root: Path, package: Package, release: Release, version: str, revision: str, out: Path) -> Path:
    """Pack the tree as a Debian package, in ``out``."""
    full = f"{version}-{revision}+{release.name}"
    scripts = {name: text for name in SCRIPTS if (text := script(package, name))}
    return pack(root, package.name, full, control(root, package, release, full), scripts, out)


def pack(root: Path, name: str, version: str, control_file: str, scripts: dict[str, str], out: Path) -> Path:
    """Pack a tree with its control file and scripts."""
    sums = [
        f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(root)}"
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    ]
    conffiles = [f"/{path.relative_to(root)}" for path in sorted((root / "etc").rglob("*")) if path.is_file()]
    folder = root / "DEBIAN"
    folder.mkdir()
    (folder / "control").write_text(control_file, "utf-8")
    (folder / "md5sums").write_text("\n".join(sums) + "\n", "utf-8")
    if conffiles:
        (folder / "conffiles").write_text("\n".join(conffiles) + "\n", "utf-8")
    for script_name, text in scripts.items():
        (folder / script_name).write_text(text, "utf-8")
        (folder / script_name).chmod(0o644 if script_name in ("templates", "triggers") else 0o755)
    settle(root)
    packed = out / f"{name}_{version}_{MACHINES.get(platform.machine(), platform.machine())}.deb"
    command = ["dpkg-deb", "--root-owner-group", "--threads-max=1", "-Zzstd", "-z9", "--build", root, packed]
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch())}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"dpkg-deb cannot pack {packed.name}: {done.stderr.strip()}")
    return packed


def library(source: Path, version: str, revision: str, out: Path) -> list[Path]:
    """Compile ``mqrt`` and pack it: what programs need, and what compiling one needs."""
    full = f"{version}-{revision}"
    with tempfile.TemporaryDirectory() as folder:
        run, compile_with = Path(folder, LIBRARY), Path(folder, HEADERS)
        places = f"/usr/lib/{triplet()}"
        words = [f"BUILD={folder}/build", f"DESTDIR={run}", "PREFIX=/usr", f"LIBDIR={places}"]
        words.append(f"CFLAGS=-O2 -ffile-prefix-map={source}=.")
        made = subprocess.run(["make", "-s", "-C", source / "mqrt", *words, "install"], capture_output=True, text=True)
        if made.returncode:
            raise SystemExit(f"mqrt cannot be compiled: install gcc and libjansson-dev\n{made.stderr.strip()[-2000:]}")
        for part in (f"{places}/libmqrt.so", f"{places}/pkgconfig", "/usr/include"):
            target = compile_with / part.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            (run / part.lstrip("/")).rename(target)
        copy(source / "mqrt/examples", compile_with / f"usr/share/doc/{HEADERS}/examples")
        needed = [one for path in run.rglob("*.so.*") for one in re.findall(rb"GLIBC_(\d+)\.(\d+)", path.read_bytes())]
        major, minor = max((int(major), int(minor)) for major, minor in needed)
        facts = {
            LIBRARY: (
                run,
                "libs",
                f"libc6 (>= {major}.{minor}), libjansson4 (>= 2.14)",
                "Message Queuing's C interface",
            ),
            HEADERS: (compile_with, "libdevel", f"{LIBRARY} (= {full})", "Message Queuing's C interface (headers)"),
        }
        packed = []
        for name, (root, section, depends, summary) in facts.items():
            documents = root / "usr/share/doc" / name
            documents.mkdir(parents=True, exist_ok=True)
            shutil.copy(HERE / "copyright", documents / "copyright")
            shutil.copy(source / "mqrt/README.md", documents / "README.md")
            compressed(documents / "changelog.gz", (source / "CHANGELOG.md").read_bytes())
            size = sum(path.lstat().st_size for path in root.rglob("*") if path.is_file())
            lines = [
                f"Package: {name}",
                "Source: qmnode",
                f"Version: {full}",
                f"Architecture: {MACHINES.get(platform.machine(), platform.machine())}",
                f"Maintainer: {MAINTAINER}",
                f"Installed-Size: {-(-size // 1024)}",
                f"Depends: {depends}",
                *(["Suggests: qmnode"] if name == LIBRARY else []),
                f"Section: {section}",
                "Priority: optional",
                f"Description: {summary}",
                *(f" {line}" for line in LIBRARY_ABOUT.splitlines()),
            ]
            scripts = {"triggers": "activate-noawait ldconfig\n"} if name == LIBRARY else {}
            packed.append(pack(root, name, full, "\n".join(lines) + "\n", scripts, out))
        return packed


def triplet() -> str:
    """The folder of this machine's libraries below ``/usr/lib``."""
    told = subprocess.run(["gcc", "-print-multiarch"], capture_output=True, text=True)
    return told.stdout.strip() or f"{platform.machine()}-linux-gnu"


def rpm(root: Path, package: Package, release: Release, version: str, revision: str, out: Path) -> Path:
    """Pack the tree as an RPM, in ``out``."""
    if shutil.which("rpmbuild") is None:
        raise SystemExit("rpmbuild is not installed: apt-get install rpm, or leave the RPMs out with --release")
    settle(root)
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder, f"{package.name}.spec")
        recipe.write_text(spec(root, package, release, version, revision), "utf-8")
        macros = {"_topdir": folder, "_rpmdir": out, "_build_name_fmt": "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm"}
        macros |= {"_buildhost": "localhost", "use_source_date_epoch_as_buildtime": "1", "_build_id_links": "none"}
        macros |= {
            "clamp_mtime_to_source_date_epoch": "1",
            "_binary_payload": "w9.zstdio",
            "__os_install_post": "%{nil}",
        }
        defined = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
        command = ["rpmbuild", "-bb", "--quiet", "--noclean", *defined, "--define", f"tree {root}", recipe]
        environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch())}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"rpmbuild cannot pack {package.name}: {done.stderr.strip()[-2000:]}")
    return out / f"{package.name}-{version}-{revision}.{release.name}.{platform.machine()}.rpm"


def spec(root: Path, package: Package, release: Release, version: str, revision: str) -> str:
    """The RPM's recipe: the same tree, with the scriptlets of its kind."""
    text = (HERE / "package.spec").read_text("utf-8")
    sections = dict(re.findall(r"(?ms)^#\[(\w+)\]\n(.*?)(?=^#\[|\Z)", text))
    listed = []
    for path in sorted(root.rglob("*")):
        name = f"/{path.relative_to(root)}"
        inside = name.startswith((f"/opt/{package.name}/", "/usr/share/mqenterprise/"))
        if path.is_dir() and name in (f"/opt/{package.name}", "/usr/share/mqenterprise"):
            listed.append(name)  # with all that is in it
        elif (path.is_symlink() or path.is_file()) and not inside:
            kept = name.startswith("/etc/")
            listed.append(f"%config(noreplace) %attr(0640,root,qmnode) {name}" if kept else name)
    facts = {
        "NAME": package.name,
        "VERSION": version,
        "REVISION": f"{revision}.{release.name}",
        "PYTHON": release.python,
        "SUMMARY": package.summary,
        "DESCRIPTION": package.description,
        "FILES": "\n".join(listed),
        "SCRIPTLETS": sections[package.name],
    }
    body = sections["all"]
    for name, value in facts.items():
        body = body.replace(f"@{name}@", value)
    return body


if __name__ == "__main__":
    sys.exit(main())
