"""Archives where they are kept, in a folder of the controller or in S3. Run on the controller.

``keep.py has FILE PLACE``, ``expect`` (which makes the folder for FILE as well), ``put``, ``get``, or ``pack`` with a
folder as the third argument, which is made an archive and put there. PLACE is a folder, or s3://BUCKET/PREFIX, which
needs boto3; AWS_ENDPOINT_URL is honoured. In the place an archive has the name of FILE. A kept archive is whole, and
only its owner reads it. Prints ``present`` or ``absent``, and after ``get`` the SHA-256 of FILE.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tarfile
from pathlib import Path
from urllib.parse import urlsplit

LEFT_OUT = ("releases", "backup", "backups")
"""Files that a controller makes again, and archives that are on their way."""


class Folder:
    """A folder of the controller."""

    def __init__(self, place: str, name: str) -> None:
        self.path = Path(place).expanduser() / name

    def has(self) -> bool:
        return self.path.is_file()

    def put(self, file: Path) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = self.path.with_name(f".{self.path.name}.partial")
        # Made anew: others may write to the folder, and one of them may own what has this name.
        partial.unlink(missing_ok=True)
        opened = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with file.open("rb") as source, os.fdopen(opened, "wb") as written:
            shutil.copyfileobj(source, written)
            written.flush()
            os.fsync(written.fileno())
        partial.replace(self.path)

    def get(self, file: Path) -> None:
        shutil.copyfile(self.path, file)


class Bucket:
    """A prefix of a bucket: an upload is there as a whole, or not at all."""

    def __init__(self, place: str, name: str) -> None:
        import boto3

        parts = urlsplit(place)
        self.bucket, self.key = parts.netloc, "/".join(part for part in (parts.path.strip("/"), name) if part)
        self.client = boto3.client("s3")

    def has(self) -> bool:
        from botocore.exceptions import ClientError

        try:
            self.client.head_object(Bucket=self.bucket, Key=self.key)
        except ClientError as error:
            if error.response["Error"]["Code"] in ("404", "NoSuchKey"):
                return False
            raise
        return True

    def put(self, file: Path) -> None:
        self.client.upload_file(str(file), self.bucket, self.key)

    def get(self, file: Path) -> None:
        self.client.download_file(self.bucket, self.key, str(file))


def pack(folder: Path, file: Path) -> None:
    """A folder as an archive, without what can be made again."""

    def chosen(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if Path(member.name).name in LEFT_OUT and member.isdir() else member

    with tarfile.open(file, "w:gz") as archive:
        archive.add(folder, arcname=folder.name, filter=chosen)


def checksum_of(file: Path) -> str:
    """The SHA-256 by which a host knows what it was sent."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def main() -> None:
    """Keep or fetch an archive, as the arguments say."""
    os.umask(0o077)
    action, file, place = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    try:
        kept = Bucket(place, file.name) if place.startswith("s3://") else Folder(place, file.name)
        if action != "has":
            file.parent.mkdir(parents=True, exist_ok=True)
        if action == "pack":
            pack(Path(sys.argv[4]), file)
        if action in ("put", "pack"):
            kept.put(file)
            file.unlink()
        elif action == "get":
            kept.get(file)
        print("present" if kept.has() else "absent", *([checksum_of(file)] if action == "get" else []))
    except Exception as error:  # boto3's own have no common class
        sys.exit(f"{place}: {error}")


main()
