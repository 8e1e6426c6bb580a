"""The file key store: permissions, atomicity, encryption at rest, secrecy."""

from __future__ import annotations

import base64
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from qmnode.security.errors import KeyStoreConflictError, KeyStoreError, KeyStoreUnavailableError
from qmnode.security.key_stores import FileKeyStore, KeyPair, KeyPurpose, KeyState, KeyStoreOptions, open_key_store
from qmnode.security.rsa_keys import AES_PROVIDER
from tests.security.keys import private_key

PASSPHRASE = "correct horse battery staple"


def pair(number: int = 0, state: KeyState = KeyState.CURRENT) -> KeyPair:
    return KeyPair.of(private_key(1024, number), AES_PROVIDER.name, KeyPurpose.ENCRYPTION, state, 1000.0 + number)


def forms_of(key: bytes) -> list[bytes]:
    """How a key's bytes could show: raw, hexadecimal, base64 at every alignment. The middle half, far from headers."""
    middle = key[len(key) // 4 : -(len(key) // 4)]
    encoded = [base64.b64encode(middle[shift:])[4:24] for shift in range(3)]
    return [middle[:16], middle[:16].hex().encode(), *encoded]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys"


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE])
async def test_pairs_come_back(path: Path, passphrase: str | None) -> None:
    store = FileKeyStore(path, passphrase)
    assert (await store.read()).version == 0
    pairs = (pair(1).superseded(2000.0), pair(0), pair(1).destroyed(3000.0))
    assert await store.replace(pairs, expected_version=0) == 1
    contents = await FileKeyStore(path, passphrase).read()
    assert contents.version == 1
    assert [(each.state, each.fingerprint, each.superseded_time, each.destroyed_time) for each in contents.pairs] == [
        (KeyState.PREVIOUS, pair(1).fingerprint, 2000.0, None),
        (KeyState.CURRENT, pair(0).fingerprint, None, None),
        (KeyState.DESTROYED, pair(1).fingerprint, None, 3000.0),
    ]
    assert [each.private_key is None for each in contents.pairs] == [False, False, True]


def test_the_file_is_the_owners_alone_whatever_the_umask(path: Path) -> None:
    old = os.umask(0)
    try:
        FileKeyStore(path).replace_now((pair(),), expected_version=0)
    finally:
        os.umask(old)
    for file in path.parent.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600, file


def test_a_store_that_is_on_another_machine_is_told(tmp_path: Path) -> None:
    with pytest.raises(KeyStoreUnavailableError, match=r"no folder .*/elsewhere on this machine; do this where"):
        FileKeyStore(tmp_path / "elsewhere/keys").replace_now((pair(),), expected_version=0)


def test_a_store_of_another_machine_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(KeyStoreUnavailableError, match=r"cannot be read: there is no folder .*/elsewhere on this"):
        FileKeyStore(tmp_path / "elsewhere/keys").read_now()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can use files of others")
class TestRoot:
    NOBODY = 65534

    @pytest.fixture
    def data(self) -> Iterator[Path]:
        """A folder of another user, as a node's is, which pytest's own cannot be: nobody else may pass through them."""
        folder = Path(tempfile.mkdtemp(prefix="qmkeys"))
        folder.chmod(0o711)
        (folder / "data").mkdir(mode=0o700)
        os.chown(folder / "data", self.NOBODY, self.NOBODY)
        yield folder / "data"
        shutil.rmtree(folder)

    @pytest.fixture
    def store(self, data: Path) -> FileKeyStore:
        return FileKeyStore(data / "keys")

    def test_it_writes_for_the_owner_of_the_folder(self, tmp_path: Path, data: Path, store: FileKeyStore) -> None:
        store.replace_now((pair(),), expected_version=0)

        assert store.read_now().version == 1
        assert store.replace_now((pair(1),), expected_version=1) == 2
        for file in data.iterdir():
            found = file.stat()
            assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (self.NOBODY, self.NOBODY, 0o600)
        (tmp_path / "own").touch()
        assert (tmp_path / "own").stat().st_uid == 0

    def test_a_file_of_somebody_else_is_refused(self, data: Path, store: FileKeyStore) -> None:
        store.replace_now((pair(),), expected_version=0)
        os.chown(data / "keys", self.NOBODY - 1, self.NOBODY)

        with pytest.raises(KeyStoreError, match="cannot be opened: Permission denied"):
            store.read_now()

    def test_its_own_folder_holds_no_keys_of_others(self, path: Path) -> None:
        FileKeyStore(path).replace_now((pair(),), expected_version=0)
        os.chown(path, self.NOBODY, self.NOBODY)

        with pytest.raises(KeyStoreError, match="belongs to user 65534, not to user 0: run this as its owner"):
            FileKeyStore(path).read_now()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o700])
def test_wider_permissions_are_refused(path: Path, mode: int) -> None:
    FileKeyStore(path).replace_now((pair(),), expected_version=0)
    path.chmod(mode)
    with pytest.raises(KeyStoreError, match=f"has mode 0{mode:o}.*chmod 600"):
        FileKeyStore(path).read_now()


def test_a_link_and_a_directory_are_refused(path: Path) -> None:
    FileKeyStore(path).replace_now((pair(),), expected_version=0)
    link = path.with_name("link")
    link.symlink_to(path)
    with pytest.raises(KeyStoreUnavailableError, match="cannot be opened"):
        FileKeyStore(link).read_now()
    with pytest.raises(KeyStoreError, match="is not a file"):
        FileKeyStore(path.parent).read_now()


def test_a_second_writer_with_an_old_version_is_told(path: Path) -> None:
    store = FileKeyStore(path)
    store.replace_now((pair(),), expected_version=0)
    with pytest.raises(KeyStoreConflictError, match="is at version 1, not 0"):
        FileKeyStore(path).replace_now((pair(1),), expected_version=0)
    assert store.read_now().pairs[0].fingerprint == pair().fingerprint


def test_a_writer_killed_before_the_end_leaves_the_old_contents(path: Path) -> None:
    store = FileKeyStore(path)
    store.replace_now((pair(),), expected_version=0)
    path.with_name("keys.new").write_bytes(b"half of")
    assert store.read_now().version == 1
    assert store.replace_now((pair(1),), expected_version=1) == 2
    assert not path.with_name("keys.new").exists()


def test_a_passphrase_hides_the_keys_and_must_be_right(path: Path) -> None:
    FileKeyStore(path, PASSPHRASE).replace_now((pair(),), expected_version=0)
    stored = path.read_bytes()
    assert not any(form in stored for form in forms_of(private_key(1024).to_der()))
    with pytest.raises(KeyStoreError, match="give its passphrase"):
        FileKeyStore(path).read_now()
    with pytest.raises(KeyStoreError, match="passphrase is wrong or the file altered"):
        FileKeyStore(path, "another").read_now()


def test_an_altered_file_is_refused(path: Path) -> None:
    FileKeyStore(path, PASSPHRASE).replace_now((pair(),), expected_version=0)
    stored = path.read_bytes()
    path.write_bytes(stored.replace(b'"n": 32768', b'"n": 99999999'))
    with pytest.raises(KeyStoreError, match="is not an encrypted key store"):
        FileKeyStore(path, PASSPHRASE).read_now()


@pytest.mark.parametrize("damage", [lambda text: text[:-40], lambda text: text.replace(b'"current"', b'"curent"')])
def test_a_damaged_file_is_reported_without_its_contents(path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    FileKeyStore(path).replace_now((pair(),), expected_version=0)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(KeyStoreError, match="cannot be read") as refused:
        FileKeyStore(path).read_now()
    told = "".join(traceback.format_exception(refused.value)).encode()
    assert not any(form in told for form in forms_of(private_key(1024).to_der()))


def test_a_key_under_anothers_fingerprint_is_refused(path: Path) -> None:
    FileKeyStore(path).replace_now((pair(),), expected_version=0)
    other = private_key(1024, 1).fingerprint.encode()
    path.write_bytes(path.read_bytes().replace(pair().fingerprint.encode(), other))
    with pytest.raises(KeyStoreError, match="is another one"):
        FileKeyStore(path).read_now()


def test_neither_store_nor_pairs_show_secrets(path: Path) -> None:
    store = FileKeyStore(path, PASSPHRASE)
    shown = repr([store, pair(), vars(store).keys()]).encode()
    assert PASSPHRASE.encode() not in shown
    assert not any(form in shown for form in forms_of(private_key(1024).to_der()))
    assert b"protected by passphrase" in shown
    with pytest.raises(TypeError):
        pickle.dumps(store)
    with pytest.raises(TypeError):
        pickle.dumps(pair())


def options(place: Path, **settings: str) -> KeyStoreOptions:
    return KeyStoreOptions(settings=settings, directory=place.parent)


def test_the_settings_name_the_file_and_its_passphrase(path: Path) -> None:
    secret = path.with_name("passphrase")
    secret.write_text(PASSPHRASE + "\n")
    secret.chmod(0o600)
    store = open_key_store("file", options(path, path="sealed", passphrase_file="passphrase"))
    assert isinstance(store, FileKeyStore)
    store.replace_now((pair(),), expected_version=0)
    assert FileKeyStore(path.with_name("sealed"), PASSPHRASE).read_now().version == 1
    secret.chmod(0o640)
    with pytest.raises(KeyStoreError, match="has mode 0640"):
        store.read_now()
    with pytest.raises(KeyStoreError, match="no settings pass"):
        open_key_store("file", options(path, **{"pass": PASSPHRASE}))
    secret.unlink()
    with pytest.raises(KeyStoreError, match="is not there"):
        store.read_now()


def test_an_installed_store_is_found_by_its_name(path: Path) -> None:
    made = FileKeyStore(path)

    class EntryPoint:
        name = "vault"

        @staticmethod
        def load() -> object:
            return lambda _: made

    assert open_key_store("vault", options(path), factories=[EntryPoint]) is made
    with pytest.raises(KeyStoreError, match=r"no key store named 'cloud' is installed \(known: file, vault\)"):
        open_key_store("cloud", options(path), factories=[EntryPoint])


def test_no_core_file_will_hold_the_keys() -> None:
    code = (
        "import resource; from qmnode.security.private_files import forbid_core_dumps; forbid_core_dumps();"
        "assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0);"
        "import ctypes; assert ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 0"  # PR_GET_DUMPABLE
    )
    subprocess.run([sys.executable, "-c", code], check=True)
