"""Build the images of node, console and directory as OCI layouts: ``build.py --packages dist --out dist``.

buildah does it, without a daemon and without a registry: the base is what debootstrap makes of Debian's archive.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
BASE = "localhost/qmnode-base:trixie"
NEEDED = ("buildah", "debootstrap")
TARGETS = ("node", "console", "directory")
PARTS = ("Containerfile", "install", "directory", "node.yaml")
LEFT_OUT = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "var/cache/apt",
    "var/lib/apt/lists",
)
"""What no process in a container reads. Licenses stay."""


def main() -> int:
    """Build what is asked for, and print each image."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--packages", type=Path, default=PROJECT / "dist", help="the folder with the Debian packages")
    parser.add_argument("--out", type=Path, default=PROJECT / "dist", help="the folder for the images")
    parser.add_argument("--target", action="append", choices=TARGETS, help="only this image")
    given = parser.parse_args()
    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        raise SystemExit(f"not installed: {', '.join(missing)}. As root: apt-get install {' '.join(missing)}")
    packages = sorted(given.packages.glob("*+deb13_*.deb"))
    if not packages:
        raise SystemExit(f"{given.packages} has no packages of Debian 13: run make packages-linux first")
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="qmimages") as folder:
        build = Path(folder, "build")
        build.mkdir()
        for path in (*packages, *(HERE / name for name in PARTS)):
            shutil.copy2(path, build)
        buildah = Buildah(Path(folder))
        buildah.base()
        for target in given.target or TARGETS:
            print(buildah.image(target, build, given.out), flush=True)
    return 0


class Buildah:
    """buildah with a storage of its own, so that it finds nothing of others and leaves nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, *arguments: str | Path) -> str:
        """Run it, and return its output. SystemExit if it fails."""
        environment = os.environ | {
            "STORAGE_DRIVER": "vfs",
            "BUILDAH_ISOLATION": "chroot",
            "SOURCE_DATE_EPOCH": epoch(),
        }
        storage = ("--root", self._folder / "storage", "--runroot", self._folder / "run")
        command = ["buildah", *storage, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            raise SystemExit(f"buildah {arguments[0]} failed: {(done.stdout + done.stderr)[-3000:]}")
        return done.stdout.strip()

    def base(self) -> None:
        """Make the base image: Debian 13 without documentation."""
        root = base_root()
        container = self.run("from", "scratch")
        self.run("add", "--quiet", container, root, "/")
        self.run("commit", "--quiet", "--timestamp", epoch(), "--rm", container, BASE)

    def image(self, target: str, build: Path, out: Path) -> Path:
        """Build one image, and put its layout into ``out``."""
        name = f"localhost/qmnode-{target}"
        self.run(
            *("build", "--quiet", "--format", "docker", "--target", target, "--build-arg", f"BASE={BASE}"),
            *(
                "--build-arg",
                f"SOURCE_DATE_EPOCH={epoch()}",
                "--timestamp",
                epoch(),
                "--pull-never",
                "--tag",
                name,
                build,
            ),
        )
        layout = out / f"qmnode-{target}-image"
        shutil.rmtree(layout, ignore_errors=True)
        self.run("push", "--quiet", "--format", "oci", name, f"oci:{layout}:latest")
        return layout


def base_root() -> Path:
    """A root of Debian 13 as debootstrap makes it, kept for the next build."""
    kept = PROJECT / "build/roots/image"
    if not kept.exists():
        partial = kept.with_name(f".image-{os.getpid()}")
        partial.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(["debootstrap", "--variant=minbase", "trixie", partial], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"debootstrap failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        for name in LEFT_OUT:
            for path in sorted((partial / name).rglob("*"), reverse=True):
                if path.is_symlink() or path.is_file():
                    if path.name != "copyright":
                        path.unlink()
                elif not any(path.iterdir()):
                    path.rmdir()
        for log in (partial / "var/log").rglob("*"):
            if log.is_file():
                log.unlink()
        (partial / "var/cache/ldconfig/aux-cache").unlink(missing_ok=True)
        partial.rename(kept)
    return kept


def epoch() -> str:
    """The time that all files get: SOURCE_DATE_EPOCH, or that of the last commit, in seconds."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    told = subprocess.run(["git", "-C", PROJECT, "log", "-1", "--format=%ct"], capture_output=True, text=True)
    return told.stdout.strip() or "1767225600"


if __name__ == "__main__":
    sys.exit(main())
