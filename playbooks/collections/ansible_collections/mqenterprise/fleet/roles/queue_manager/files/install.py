"""Install a release in its own virtual environment. Arguments: folder of releases, name, and SHA-256 of the archive,
which comes over standard input: no other account can touch it.

Nothing that runs is touched: an environment is made beside the others, and counts when it is marked complete. Without
a package index, a compiler, or Debian's python3.11-venv: pip comes with the archive.
"""

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
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
    except (OSError, ValueError, tarfile.TarError, subprocess.CalledProcessError) as error:
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
    run(sys.executable, "-m", "venv", "--without-pip", str(target))
    pip = next(wheels.glob("pip-*.whl"))
    compiled = list(wheels.glob("*_compiled-*.whl"))
    # The archive brings what the controller's Python compiled; another Python compiles it here.
    fitting = [wheel for wheel in compiled if f"-cp{sys.version_info[0]}{sys.version_info[1]}-" in wheel.name]
    given = [
        str(wheel) for wheel in wheels.glob("*.whl") if wheel != pip and (wheel in fitting or wheel not in compiled)
    ]
    run(
        *(str(target / "bin/python"), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-cache-dir"),
        *("--disable-pip-version-check", "--root-user-action=ignore", *(["--no-compile"] if fitting else []), *given),
        PYTHONPATH=str(pip),
    )
    if not fitting:  # chosen for this Python by another one: is it whole?
        run(str(target / "bin/python"), "-m", "pip", "check", "--disable-pip-version-check", PYTHONPATH=str(pip))
    # The node's account reads it, whatever the umask of who installs.
    run("chmod", "-R", "go+rX", str(target))


def run(*command: str, **variables: str) -> None:
    """A program that has to succeed."""
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **variables})


main()
