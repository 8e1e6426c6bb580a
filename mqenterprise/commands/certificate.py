"""``mqenterprise certificate register|list|renew|revoke``: the certificates that users sign messages with."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from mqenterprise.certificates.files import make_internal, read_certificate
from mqenterprise.certificates.registry import CertificateError, CertificateRegistry, fingerprint_of, row_of
from mqenterprise.commands.directory_option import FAILED, SOMETHING_TO_DO, AsJson, DirectoryFile, opened, show
from qmnode.commands.error_line import complain
from qmnode.commands.node_options import WideOption
from qmnode.security.private_files import forbid_core_dumps

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Certificates that users sign messages with.")

COLUMNS = {
    "user": "user",
    "fingerprint": "fingerprint",
    "subject_key": "key",
    "not_before": "valid from",
    "not_after": "valid until",
    "state": "state",
}

UserName = Annotated[str, typer.Argument(help="The user's account name.", metavar="USER")]
Fingerprint = Annotated[str, typer.Argument(help="The certificate, by the beginning of its fingerprint.")]
CertificateFile = Annotated[Path | None, typer.Option("--certificate", help="PEM or DER file of a certificate.")]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--internal",
        metavar="KEY_FILE",
        help="Make an internal certificate, and write its private key to this new file.",
    ),
]
Days = Annotated[int, typer.Option(min=1, max=3650, help="Days for which an internal certificate is valid.")]
Bits = Annotated[int, typer.Option(min=1024, max=8192, help="Length of an internal certificate's key.")]
Ahead = Annotated[int, typer.Option("--ahead", min=0, help="Days before its expiry from which a certificate is due.")]


@app.command()
def register(
    user: UserName,
    directory_file: DirectoryFile = None,
    certificate: CertificateFile = None,
    internal: KeyFile = None,
    days: Days = 365,
    bits: Bits = 2048,
    as_json: AsJson = False,
) -> None:
    """Register a certificate for a user: an existing one, or a new internal one."""
    with _registry(directory_file) as registry:
        registry.check_user(user)  # before a key is made for nobody
        added = registry.register(user, _encoded(user, certificate, internal, days, bits))
        show([row_of(added, time.time(), 0)], COLUMNS, as_json=as_json, empty="")


@app.command("list")
def list_(
    user: Annotated[str | None, typer.Argument(help="Only certificates of this user.", metavar="USER")] = None,
    directory_file: DirectoryFile = None,
    ahead: Ahead = 30,
    as_json: AsJson = False,
    wide: WideOption = False,
) -> None:
    """List certificates and when they expire. Exit code 2: one is due to be renewed or revoked."""
    with _registry(directory_file) as registry:
        now = time.time()
        rows = [row_of(each, now, ahead) for each in registry.list(user)]
        rows.sort(key=lambda row: (str(row["user"]).casefold(), str(row["not_after"])))
        show(
            rows,
            COLUMNS,
            as_json=as_json,
            empty="no certificates",
            whole=("user", "fingerprint", "valid from", "valid until"),
            drop=("key", "valid from", "user"),
            wide=wide,
        )
        if any(row["is_due"] for row in rows):
            raise typer.Exit(SOMETHING_TO_DO)


@app.command()
def renew(
    user: UserName,
    fingerprint: Fingerprint,
    directory_file: DirectoryFile = None,
    certificate: CertificateFile = None,
    internal: KeyFile = None,
    days: Days = 365,
    bits: Bits = 2048,
    replace: Annotated[bool, typer.Option("--replace", help="Revoke the old one at once.")] = False,
    as_json: AsJson = False,
) -> None:
    """Register a new certificate beside one that expires.

    Messages under way are verified with the old one until it is revoked."""
    with _registry(directory_file) as registry:
        old = registry.find(user, fingerprint)
        added = registry.register(user, _encoded(user, certificate, internal, days, bits))
        if replace and added.digest != old.digest:
            registry.revoke(user, fingerprint_of(old))
        show([row_of(each, time.time(), 0) for each in registry.list(user)], COLUMNS, as_json=as_json, empty="")


@app.command()
def revoke(user: UserName, fingerprint: Fingerprint, directory_file: DirectoryFile = None) -> None:
    """Revoke a certificate. Nodes refuse it after security.user_cert_lifetime (20 minutes by default)."""
    with _registry(directory_file) as registry:
        gone = registry.revoke(user, fingerprint)
        typer.echo(f"{gone.user} does not sign with {fingerprint_of(gone)} any more")


@contextmanager
def _registry(directory_file: Path | None) -> Iterator[CertificateRegistry]:
    forbid_core_dumps()
    try:
        with opened(directory_file) as directory:
            yield CertificateRegistry(directory)
    except CertificateError as error:
        complain(error.sentence)
        raise typer.Exit(FAILED) from None


def _encoded(user: str, certificate: Path | None, internal: Path | None, days: int, bits: int) -> bytes:
    if (certificate is None) == (internal is None):
        raise CertificateError("give either --certificate FILE, or --internal KEY_FILE to have one made")
    if certificate is not None:
        return read_certificate(certificate)
    assert internal is not None
    return make_internal(user, internal, time.time(), days, bits).encoded
