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
  - Run it on the controller (C(delegate_to=localhost)) with a Python that has C(pip), of the hosts' version and
    platform.
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
checksum:
  description: The SHA-256 of the archive, which hosts compare before they open it; empty if none is built yet.
  type: str
  returned: always
  sample: 9b1f0c8a1d53c1e2b2a0aa3b5f0f8f3e6d0c4b8a79d1e2f30415263748596a7b
"""

import compileall
import hashlib
import py_compile
import re
import shutil
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

LEFT_OUT = {"__pycache__", ".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache"}


def project_of(source):
    """Name and version in a folder's pyproject.toml."""
    import tomllib

    with (source / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    return project["project"]["name"], project["project"]["version"], packages_of(project)


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
    """Run pip with all extras, and again without the optional ones if they cannot be had; its last code and error."""
    extras, optional = module.params["extras"], module.params["optional_extras"]
    wanted = ",".join([*extras, *optional])
    code, _out, err = module.run_command([*command, f"{source}[{wanted}]" if wanted else str(source), "pip"])
    if code != 0 and optional:
        wanted = ",".join(extras)
        code, _out, err = module.run_command([*command, f"{source}[{wanted}]" if wanted else str(source), "pip"])
        if code == 0:
            module.warn(f"the release is without {', '.join(optional)}: the wheels cannot be had")
    return code, err


def build(module, source, name, constraints, archive):
    """Build the wheels in a folder of their own and put the archive in place when it is whole."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        wheels = Path(folder) / "wheels"
        pool = archive.parent / "wheels"
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
        command += ["--wheel-dir", str(wheels), "--find-links", str(pool)]
        if constraints is not None:
            plain = Path(folder) / "constraints.txt"
            plain.write_text(without_hashes(constraints.read_text("utf-8")), "utf-8")
            command += ["--constraint", str(plain)]
        pool.mkdir(exist_ok=True)
        code, err = make_wheels(module, command, source)
        if code != 0:
            module.fail_json(
                msg=f"the wheels of {source} cannot be built: {err.strip()[-2000:]}. "
                "The controller needs pip and a package index, or the wheels in " + str(pool)
            )
        own = name.replace("-", "_")
        add_compiled(wheels, own, Path(folder) / "tree")
        for wheel in wheels.iterdir():
            if not wheel.name.startswith((f"{own}-", f"{own}_compiled-")) and not (pool / wheel.name).exists():
                shutil.copy(wheel, pool / wheel.name)
        partial = archive.with_suffix(".partial")
        with tarfile.open(partial, "w") as file:
            for wheel in sorted(wheels.iterdir()):
                file.add(wheel, arcname=f"wheels/{wheel.name}")
        partial.replace(archive)


def add_compiled(wheels, name, tree):
    """Add a wheel with what this Python compiles from the others, so that no host has to."""
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as packed:
            if not wheel.name.startswith("pip-"):
                for each in packed.namelist():
                    if each.endswith(".py") and ".data/" not in each:
                        packed.extract(each, tree)
    # A release never changes, so what is compiled need not be compared with its source.
    compileall.compile_dir(
        tree, quiet=2, stripdir=str(tree), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}-none-any"
    about = f"{name}_compiled-0.dist-info"
    texts = {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}_compiled\nVersion: 0\n",
        f"{about}/WHEEL": f"Wheel-Version: 1.0\nGenerator: mqenterprise\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    files = {str(path.relative_to(tree)): path for path in sorted(tree.rglob("*.pyc"))}
    texts[f"{about}/RECORD"] = "".join(f"{path},,\n" for path in (*files, *texts, f"{about}/RECORD"))
    with zipfile.ZipFile(wheels / f"{name}_compiled-0-{tag}.whl", "w", zipfile.ZIP_DEFLATED) as packed:
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
    try:
        checksum = checksum_of(archive)
    except OSError as error:
        module.fail_json(msg=f"{archive} cannot be read: {error}")
    module.exit_json(changed=changed, release=release, version=version, archive=str(archive), checksum=checksum)


if __name__ == "__main__":
    main()
