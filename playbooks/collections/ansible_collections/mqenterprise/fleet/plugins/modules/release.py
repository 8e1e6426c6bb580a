#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Build what hosts install: one archive of wheels, made once on the controller and kept."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release
short_description: Build a release of the node, with all that it depends on, as one archive of wheels
description:
  - Builds the wheels of the project and of its dependencies once, on the controller, and keeps them.
  - Hosts install from the archive and need no package index, no compiler and no C(pip).
  - A release is named after its version and what is in it, so that the same sources are the same release.
version_added: 0.1.0
author: The qmnode authors (@qmnode)
options:
  source:
    description: The project's sources, a folder with a C(pyproject.toml).
    type: path
    required: true
  dest:
    description: Folder where archives are kept. It is created when it is not there.
    type: path
    required: true
  extras:
    description: Extras of the project that the hosts get.
    type: list
    elements: str
    default: [enterprise]
  optional_extras:
    description: Extras that the hosts get as well if their wheels can be had. Otherwise the release is without them.
    type: list
    elements: str
    default: []
  targets:
    description:
      - What the hosts have, as the role's inspection finds it, for example C(3.13 x86_64 glibc 2.41).
      - Each has a version of Python, an architecture, and a C library. If the controller's own wheels do not fit it, it
        gets an archive of its own, of wheels that exist.
      - Packages without wheels are compiled by the controller, for its own kind of host and for hosts of that kind with
        another Python that the controller has too, for example C(python3.11) on its E(PATH). A target that lacks one is
        no failure of this module; RV(archives) says what it lacks.
    type: list
    elements: str
    default: []
  constraints:
    description: Versions of the dependencies; by default C(requirements.lock) in O(source), if it is there.
    type: path
attributes:
  check_mode:
    description: Says which release it would be, and builds nothing.
    support: full
  diff_mode:
    description: There is nothing to show but the name.
    support: none
notes:
  - Run it on the controller (C(delegate_to=localhost)) with a Python that has C(pip).
"""

EXAMPLES = r"""
- name: Build what the hosts install
  mqenterprise.fleet.release:
    source: /srv/qmnode
    dest: /var/lib/mqenterprise/releases
  delegate_to: localhost
  run_once: true
  register: built
"""

RETURN = r"""
release:
  description: The name of the release.
  type: str
  returned: always
  sample: 0.1.0-4f2a9c01d3be
version:
  description: The version of the project.
  type: str
  returned: always
  sample: 0.1.0
archive:
  description: The archive of its wheels.
  type: str
  returned: always
  sample: /var/lib/mqenterprise/releases/0.1.0-4f2a9c01d3be.tar
archives:
  description: For each of O(targets) its C(archive) with C(checksum), or the C(problem) for which there is none.
  type: dict
  returned: always
  sample:
    3.13 x86_64 glibc 2.41:
      archive: /var/lib/mqenterprise/releases/0.1.0-4f2a9c01d3be-3.13-x86_64-glibc-2.41.tar
      checksum: 9b1f0c8a1d53c1e2b2a0aa3b5f0f8f3e6d0c4b8a79d1e2f30415263748596a7b
      problem: ''
target:
  description: What the controller has, as in O(targets).
  type: str
  returned: always
  sample: 3.11 x86_64 glibc 2.36
checksum:
  description: The SHA-256 of the archive, which hosts compare before they open it; empty if none is built yet.
  type: str
  returned: always
  sample: 9b1f0c8a1d53c1e2b2a0aa3b5f0f8f3e6d0c4b8a79d1e2f30415263748596a7b
"""

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

INSTALLER = "installer"
"""The package that installs the others on the hosts."""
LEFT_OUT = {"__pycache__", ".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache"}


def project_of(source):
    """Name and version in a folder's pyproject.toml."""
    import tomllib

    with (source / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    return project["project"]["name"], project["project"]["version"], packages_of(project)


def backend_of(source):
    """The package that builds a folder's wheel."""
    import tomllib

    with (source / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["build-system"]["build-backend"].partition(".")[0]


def packages_of(project):
    """The folders that the wheel is made of."""
    wheel = project.get("tool", {}).get("hatch", {}).get("build", {}).get("targets", {}).get("wheel", {})
    return wheel.get("packages", ["."])


def digest(source, packages, more):
    """Return the digest that names the contents of a release."""
    files = [source / "pyproject.toml"]
    for package in packages:
        files += (path for path in (source / package).rglob("*") if path.is_file() and not LEFT_OUT & set(path.parts))
    found = hashlib.sha256()
    for path in sorted(files):
        found.update(f"{path.relative_to(source)}\0".encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    for text in more:
        found.update(f"\0{text}".encode())
    return found.hexdigest()[:12]


def without_hashes(constraints):
    """Return the constraints as pip takes them beside a folder of sources, which has no hash."""
    return re.sub(r"[ \t]*\\\n[ \t]*--hash=\S+", "", constraints)


def make_wheels(module, command, source):
    """Run pip with all extras, and again without the optional ones if they cannot be had; its last code and words."""
    extras, optional = module.params["extras"], module.params["optional_extras"]
    wanted = ",".join([*extras, *optional])
    code, out, err = module.run_command([*command, f"{source}[{wanted}]" if wanted else str(source)])
    if code != 0 and optional:
        wanted = ",".join(extras)
        code, out, err = module.run_command([*command, f"{source}[{wanted}]" if wanted else str(source)])
        if code == 0:
            module.warn(f"the release is without {', '.join(optional)}: the wheels cannot be had")
    return code, f"{out}\n{err}"


def own_target():
    """The kind of host that the controller builds for: version of Python, architecture, C library."""
    try:
        library = os.confstr("CS_GNU_LIBC_VERSION") or "musl"
    except (OSError, ValueError):
        library = "musl"
    return f"{sys.version_info[0]}.{sys.version_info[1]} {platform.machine()} {library}"


def parts_of(target):
    """Python, architecture, C library and its version, in numbers."""
    python, machine, library, *version = target.split()
    return python, machine, library, tuple(int(number) for number in ".".join(version).split(".") if number)


def fits(own, target):
    """Whether a host can have what is built for the controller: its C library may be newer."""
    python, machine, library, version = parts_of(own)
    return parts_of(target)[:3] == (python, machine, library) and parts_of(target)[3] >= version


def fits_but_python(target):
    """Whether a host can have what the controller compiles for the host's Python."""
    return fits(" ".join([parts_of(target)[0], *own_target().split()[1:]]), target)


def platforms_of(target):
    """The tags of wheels that such a host can have, the newest first: PEP 600 and PEP 656."""
    _python, machine, library, version = parts_of(target)
    if library == "musl":
        return [f"musllinux_1_{minor}_{machine}" for minor in (2, 1, 0)]
    newest = version[1] if version[:1] == (2,) and len(version) > 1 else 17
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(newest, 4, -1)]
    tags += [f"manylinux2014_{machine}", f"manylinux2010_{machine}", f"manylinux1_{machine}"]
    # Wheels that the controller has compiled need its own C library, or a newer one.
    return [*tags, f"linux_{machine}"] if fits_but_python(target) else tags


def chosen_for(target):
    """Options of pip that choose wheels for a target."""
    python = parts_of(target)[0]
    options = ["--only-binary", ":all:", "--implementation", "cp", "--python-version", python]
    options += ["--abi", f"cp{python.replace('.', '')}", "--abi", "abi3", "--abi", "none"]
    return [*options, *(word for tag in platforms_of(target) for word in ("--platform", tag))]


def python_of(module, target):
    """A Python of the controller that builds what a target can have, and None if it has none."""
    python = shutil.which(f"python{parts_of(target)[0]}")
    if python is None or not fits_but_python(target):
        return None
    # A name on PATH may be there and not run, as those of pyenv.
    return None if module.run_command([python, "-c", "import sys"])[0] else python


def pip_command(verb, wheels, pool, constraints, python=None):
    """The command of pip, with versions of the constraints, wheels of the pool before those of an index."""
    command = [sys.executable, "-m", "pip", *(["--python", python] if python else []), verb]
    command += ["--disable-pip-version-check"]
    command += ["--wheel-dir" if verb == "wheel" else "--dest", str(wheels), "--find-links", str(pool)]
    if constraints is not None:
        plain = wheels.parent / "constraints.txt"
        plain.write_text(without_hashes(constraints.read_text("utf-8")), "utf-8")
        command += ["--constraint", str(plain)]
    return command


def keep(wheels, name, pool):
    """Keep the wheels of others, for the next release."""
    for wheel in wheels.iterdir():
        if not wheel.name.startswith((f"{name}-", f"{name}_compiled-")) and not (pool / wheel.name).exists():
            shutil.copy(wheel, pool / wheel.name)


def pack(wheels, archive):
    """Put the archive in place when it is whole."""
    partial = archive.with_name(archive.name + ".partial")
    with tarfile.open(partial, "w") as file:
        for wheel in sorted(wheels.iterdir()):
            file.add(wheel, arcname=f"wheels/{wheel.name}")
    partial.replace(archive)


def build(module, source, name, constraints, archive):
    """Build the wheels for the controller's own kind of host, in a folder of their own."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        wheels = Path(folder) / "wheels"
        pool = archive.parent / "wheels"
        pool.mkdir(exist_ok=True)
        own = name.replace("-", "_")
        command = pip_command("wheel", wheels, pool, constraints)
        # pip makes an environment with the build backend, as long as the controller has none.
        isolated = [] if importlib.util.find_spec(backend_of(source)) is None else ["--no-build-isolation"]
        code, out, err = module.run_command([*command, "--no-deps", *isolated, str(source)])
        if code == 0:
            code, err = make_wheels(module, [*command, INSTALLER], next(wheels.glob(f"{own}-*")))
        if code != 0:
            module.fail_json(
                msg=f"the wheels of {source} cannot be built: {(err or out).strip()[-2000:]}. "
                "The controller needs pip and a package index, or the wheels in " + str(pool)
            )
        add_compiled(wheels, own, Path(folder) / "tree")
        keep(wheels, own, pool)
        pack(wheels, archive)


def fetch(module, name, constraints, target, own_archive, archive):
    """Fetch the wheels for another kind of host, and return why they cannot be had; empty if they can."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        wheels = Path(folder) / "wheels"
        pool = archive.parent / "wheels"
        own = name.replace("-", "_")
        with tarfile.open(own_archive) as packed:
            member = next(one for one in packed if one.name.startswith(f"wheels/{own}-"))
            project = Path(folder) / Path(member.name).name
            with project.open("wb") as written:
                shutil.copyfileobj(packed.extractfile(member), written)
        wheels.mkdir()
        # Another Python chooses these wheels, so pip checks them on the host.
        command = [*pip_command("download", wheels, pool, constraints), *chosen_for(target), INSTALLER, "pip"]
        python, compiled = python_of(module, target), set()
        while True:
            code, said = make_wheels(module, command, project)
            if code == 0:
                break
            lacks = re.findall(r"\(constraint\) ([\w.-]+)==|No matching distribution found for ([\w.-]+)", said)
            names = sorted({one or other for one, other in lacks})
            own_pip = [*pip_command("wheel", wheels, pool, constraints, python), "--no-deps", *names]
            if python is None or not names or compiled.issuperset(names) or module.run_command(own_pip)[0]:
                errors = [line for line in said.splitlines() if line.startswith("ERROR: ")]
                return f"none of {', '.join(names)}" if names else (errors or [said.strip()[-300:]])[-1]
            compiled.update(names)
            keep(wheels, own, pool)
        keep(wheels, own, pool)
        pack(wheels, archive)
    return ""


def archive_for(module, name, constraints, target, own_archive):
    """The archive for a target with its checksum, or the problem for which there is none; and whether it is new."""
    try:
        if fits(own_target(), target):
            return {"archive": str(own_archive), "checksum": checksum_of(own_archive), "problem": ""}, False
        python = parts_of(target)[0]
    except (ValueError, IndexError):
        module.fail_json(msg=f"{target!r} is no target: give it as in '3.13 x86_64 glibc 2.41'")
    archive = own_archive.with_name(f"{own_archive.stem}-{re.sub('[^0-9A-Za-z._]+', '-', target)}.tar")
    changed, problem = not archive.exists(), ""
    if changed and not module.check_mode:
        missing = fetch(module, name, constraints, target, own_archive, archive)
        if missing:
            problem = (
                f"there are no wheels for its Python {python} on {target.partition(' ')[2]}, {missing}. "
                "Install another Python there, and name it with queue_manager_python. "
                f"The controller builds for {own_target()}"
            )
    return {"archive": str(archive), "checksum": checksum_of(archive), "problem": problem}, changed and not problem


def add_compiled(wheels, name, tree):
    """Add a wheel with what this Python compiles from the others, so that no host has to."""
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as packed:
            if not wheel.name.startswith(f"{INSTALLER}-"):
                for each in packed.namelist():
                    if each.endswith(".py") and ".data/" not in each:
                        packed.extract(each, tree)
    # By all processors. A release never changes, so what is compiled need not be compared with its source.
    command = [sys.executable, "-m", "compileall", "-qq", "-j", "0", "-s", str(tree)]
    subprocess.run([*command, "--invalidation-mode", "unchecked-hash", str(tree)], check=False)
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}-none-any"
    about = f"{name}_compiled-0.dist-info"
    texts = {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}_compiled\nVersion: 0\n",
        f"{about}/WHEEL": f"Wheel-Version: 1.0\nGenerator: mqenterprise\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    files = {str(path.relative_to(tree)): path for path in sorted(tree.rglob("*.pyc"))}
    texts[f"{about}/RECORD"] = "".join(f"{path},,\n" for path in (*files, *texts, f"{about}/RECORD"))
    with zipfile.ZipFile(wheels / f"{name}_compiled-0-{tag}.whl", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        for path, file in files.items():
            packed.write(file, path)
        for path, text in texts.items():
            packed.writestr(path, text)


def checksum_of(archive):
    """The SHA-256 of the archive; empty if there is none."""
    try:
        with archive.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return ""


def main():
    """Run the module with the arguments that Ansible passes."""
    module = AnsibleModule(
        argument_spec={
            "source": {"type": "path", "required": True},
            "dest": {"type": "path", "required": True},
            "extras": {"type": "list", "elements": "str", "default": ["enterprise"]},
            "optional_extras": {"type": "list", "elements": "str", "default": []},
            "targets": {"type": "list", "elements": "str", "default": []},
            "constraints": {"type": "path"},
        },
        supports_check_mode=True,
    )
    source, dest = Path(module.params["source"]).absolute(), Path(module.params["dest"]).absolute()
    lock = source / "requirements.lock"
    constraints = Path(module.params["constraints"] or lock)
    if not constraints.exists():
        constraints = None
    try:
        name, version, packages = project_of(source)
        pinned = constraints.read_text("utf-8") if constraints else ""
        extras = {*module.params["extras"], *module.params["optional_extras"]}
        release = f"{version}-{digest(source, packages, [*sorted(extras), pinned])}"
    except (OSError, KeyError, ValueError) as error:
        module.fail_json(msg=f"{source} is not the project's source: {error}")
    archive = dest / f"{release}.tar"
    changed = not archive.exists()
    if changed and not module.check_mode:
        try:
            dest.mkdir(parents=True, exist_ok=True)
            build(module, source, name, constraints, archive)
        except OSError as error:
            module.fail_json(msg=f"the release cannot be kept in {dest}: {error}")
    archives = {}
    try:
        checksum = checksum_of(archive)
        for target in dict.fromkeys(module.params["targets"]):
            archives[target], is_new = archive_for(module, name, constraints, target, archive)
            changed = changed or is_new
    except OSError as error:
        module.fail_json(msg=f"the archives of {release} in {dest} cannot be read or kept: {error}")
    module.exit_json(
        changed=changed, release=release, version=version, archive=str(archive), checksum=checksum,
        archives=archives, target=own_target(),
    )  # fmt: skip


if __name__ == "__main__":
    main()
