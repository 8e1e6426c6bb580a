"""Install a release in a virtual environment of its own. Arguments: the archive, the folder of releases, the name.

Nothing that runs is touched: an environment is made beside the others, and counts when it is marked complete. Without
a package index, a compiler, or Debian's python3.11-venv: pip comes with the archive.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path


def main() -> None:
    """Install, or end with the reason and leave nothing behind."""
    archive, releases, name = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    target = releases / name
    shutil.rmtree(target, ignore_errors=True)
    try:
        releases.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=releases, prefix=".wheels") as folder:
            with tarfile.open(archive) as file:
                file.extractall(folder)  # noqa: S202  our own archive, whose checksum Ansible has compared
            install(target, Path(folder) / "wheels")
        (target / ".complete").touch()
    except (OSError, subprocess.CalledProcessError) as error:
        shutil.rmtree(target, ignore_errors=True)
        said = getattr(error, "stderr", None)
        sys.exit(f"the release cannot be installed in {releases}: {said.decode()[-1500:] if said else error}")
    archive.unlink(missing_ok=True)


def install(target: Path, wheels: Path) -> None:
    """A virtual environment with what is in the wheels, and nothing else."""
    run(sys.executable, "-m", "venv", "--without-pip", str(target))
    pip = next(wheels.glob("pip-*.whl"))
    given = [str(wheel) for wheel in wheels.glob("*.whl") if wheel != pip]
    run(
        *(sys.executable, "-m", "pip", "--python", str(target / "bin/python"), "install", "--quiet", "--no-index"),
        *("--no-deps", "--disable-pip-version-check", "--root-user-action=ignore", "--no-cache-dir", *given),
        PYTHONPATH=str(pip),
    )
    # The node's account reads it, whatever the umask of who installs.
    run("chmod", "-R", "go+rX", str(target))


def run(*command: str, **variables: str) -> None:
    """A program that has to succeed."""
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **variables})


main()
