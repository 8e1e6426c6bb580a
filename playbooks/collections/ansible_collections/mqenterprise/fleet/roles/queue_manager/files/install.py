"""Install a release in its own virtual environment. Arguments: archive, folder of releases, name, and the SHA-256.

Nothing that runs is touched: an environment is made beside the others, and counts when it is marked complete. Without
a package index, a compiler, or Debian's python3.11-venv: pip comes with the archive.
"""

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path


def main() -> None:
    """Install, or end with the reason and leave nothing behind."""
    archive, releases, name, checksum = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    target = releases / name
    shutil.rmtree(target, ignore_errors=True)
    try:
        releases.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=releases, prefix=".wheels") as folder:
            with opened(archive, checksum) as file:
                extract(file, Path(folder))
            install(target, Path(folder))
        (target / ".complete").touch()
    except (OSError, ValueError, tarfile.TarError, subprocess.CalledProcessError) as error:
        shutil.rmtree(target, ignore_errors=True)
        said = getattr(error, "stderr", None)
        sys.exit(f"the release cannot be installed in {releases}: {said.decode()[-1500:] if said else error}")
    archive.unlink(missing_ok=True)


def opened(archive: Path, checksum: str):
    """The archive to read, if it is the one that was sent. OSError if another account could have touched it, ValueError
    if it is another one."""
    file = os.fdopen(os.open(archive, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    try:
        found = os.fstat(file.fileno())
        own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink == 1
        if not own or found.st_mode & 0o022:
            raise PermissionError(f"{archive} is not a file of this account alone: another one could have replaced it")
        if hashlib.file_digest(file, "sha256").hexdigest() != checksum:
            raise ValueError(f"{archive} is not the archive that was sent: its SHA-256 is another one")
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def extract(archive, folder: Path) -> None:
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
