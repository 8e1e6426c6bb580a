"""Install a release in its own virtual environment. Arguments: folder of releases, name, and SHA-256 of the archive,
which comes over standard input: no other account can touch it.

Nothing that runs is touched: an environment is made beside the others, and counts when it is marked complete. Without
a package index, a compiler, or Debian's python3.11-venv: what installs the wheels comes with the archive.
"""

import hashlib
import io
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path


def main() -> None:
    """Install, or end with the reason and leave nothing behind."""
    releases, name, checksum = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    target = releases / name
    shutil.rmtree(target, ignore_errors=True)
    try:
        releases.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=releases, prefix=".wheels") as folder:
            extract(received(checksum), Path(folder))
            install(target, Path(folder))
        (target / ".complete").touch()
    except Exception as error:  # a damaged wheel has many faults, without a common class
        shutil.rmtree(target, ignore_errors=True)
        said = getattr(error, "stderr", None) or getattr(error, "stdout", None)
        sys.exit(f"the release cannot be installed in {releases}: {said.decode()[-1500:] if said else error}")


def received(checksum: str) -> io.BytesIO:
    """The archive that came over the connection. ValueError if it is not the one that was sent."""
    content = sys.stdin.buffer.read()
    if hashlib.sha256(content).hexdigest() != checksum:
        raise ValueError("another archive came than the one that was sent: its SHA-256 is another one")
    return io.BytesIO(content)


def extract(archive: io.BytesIO, folder: Path) -> None:
    """The wheels of an archive, whatever its names are. ValueError for any other content."""
    with tarfile.open(fileobj=archive) as packed:
        for member in packed:
            name = Path(member.name).name
            content = packed.extractfile(member) if member.isreg() and member.name == f"wheels/{name}" else None
            if content is None or not name.endswith(".whl"):
                raise ValueError(f"the release holds {member.name!r:.80}, which is no wheel")
            with (folder / name).open("xb") as written:
                shutil.copyfileobj(content, written)


def install(target: Path, wheels: Path) -> None:
    """A virtual environment with what is in the wheels, and nothing else."""
    venv.create(target, symlinks=True)
    sys.path.insert(0, str(next(wheels.glob("installer-*.whl"))))
    from installer import install as install_wheel
    from installer.destinations import SchemeDictionaryDestination
    from installer.sources import WheelFile

    compiled = list(wheels.glob("*_compiled-*.whl"))
    # The archive brings what the controller's Python compiled; another Python compiles it here.
    fitting = [wheel for wheel in compiled if f"-cp{sys.version_info[0]}{sys.version_info[1]}-" in wheel.name]
    paths = sysconfig.get_paths("venv", {"base": str(target), "platbase": str(target), "installed_base": str(target)})
    destination = SchemeDictionaryDestination(
        {**paths, "headers": paths["include"]},
        interpreter=str(target / "bin/python"),
        script_kind="posix",
        bytecode_optimization_levels=() if fitting else (0,),
    )
    for wheel in wheels.glob("*.whl"):
        if wheel in fitting:
            zipfile.ZipFile(wheel).extractall(paths["purelib"])  # noqa: S202  no name leads out of the folder
        elif wheel not in compiled and not wheel.name.startswith(("installer-", "pip-")):
            with WheelFile.open(wheel) as source:
                source.validate_record(validate_contents=False)  # the archive was, as a whole
                install_wheel(source, destination, {"INSTALLER": b"installer\n"})
    if not fitting:  # chosen for this Python by another one: is it whole?
        check = (str(target / "bin/python"), "-m", "pip", "check", "--disable-pip-version-check")
        run(*check, PYTHONPATH=str(next(wheels.glob("pip-*.whl"))))
    # The node's account reads it, whatever the umask of who installs.
    run("chmod", "-R", "go+rX", str(target))


def run(*command: str, **variables: str) -> None:
    """A program that has to succeed."""
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **variables})


main()
