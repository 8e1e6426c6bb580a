"""``mqenterprise directory``: the private directory of those who have none, and nodes let into any directory."""

import datetime
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mqenterprise.commands.directory_option import (
    FAILED,
    SOMETHING_TO_DO,
    AsJson,
    DirectoryFile,
    failing_clearly,
    opened,
    print_document,
)
from mqenterprise.directory.admission import SETTINGS_FILE, admit, hash_clear_passwords
from mqenterprise.directory.chosen_directory import default_state
from mqenterprise.directory.errors import DirectoryError, ObjectNotFound
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.private_slapd import EmbeddedDirectory, EmbeddedSettings
from qmnode.commands.error_line import complain

app = typer.Typer(no_args_is_help=True, add_completion=False, help="A private directory, and nodes let into one.")

State = Annotated[Path | None, typer.Option("--state", help="Folder that holds it; one folder for each directory.")]


def _embedded(state: Path | None) -> EmbeddedDirectory:
    return EmbeddedDirectory(state or default_state())


@app.command()
def up(
    context: typer.Context,
    state: State = None,
    host: Annotated[str, typer.Option(help="Name or address that clients connect to.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port for LDAP over TLS.")] = 6360,
    root: Annotated[str, typer.Option(help="Distinguished name of the root, of dc= parts.")] = "dc=msmq",
    name: Annotated[list[str] | None, typer.Option(help="Further name in the server's certificate.")] = None,
) -> None:
    """Start the private directory, and create it the first time.

    --host, --port, --root and --name take effect only when it is created."""
    embedded = _embedded(state)
    with failing_clearly():
        try:
            wanted = EmbeddedSettings(root=root, host=host, port=port, names=tuple(name or ()))
        except ValueError as error:
            raise DirectoryError(f"--root {root} is not a name of dc= parts such as dc=msmq") from error
        if embedded.exists:
            given = [name for name in ("host", "port", "root", "name") if _is_given(context, name)]
            _check_is_as_wanted(embedded, wanted, given)
        embedded.create(wanted)
        embedded.start()
        with EnterpriseDirectory(embedded.client_settings()) as directory:
            directory.prepare()
        typer.echo(f"directory {embedded.settings.root} answers on {embedded.url(embedded.settings)}")
        typer.echo(f"its clients trust {embedded.paths.authority}")
        if embedded.paths.state != default_state():
            typer.echo(f"other commands name it with --directory {embedded.write_client_settings()}")


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _check_is_as_wanted(embedded: EmbeddedDirectory, wanted: EmbeddedSettings, given: list[str]) -> None:
    """Raise DirectoryError if an option would make the existing directory another one, which it cannot."""
    for name in given:
        present, asked = _values(embedded.settings, name), _values(wanted, name)
        if asked - present:
            raise DirectoryError(
                f"--{name} {', '.join(sorted(asked))}: the directory in {embedded.paths.state} exists with "
                f"{', '.join(sorted(present)) or 'none'}, which is chosen when it is created: leave the option out, or "
                "name another folder with --state"
            )


def _values(settings: EmbeddedSettings, name: str) -> set[str]:
    return set(settings.names) if name == "name" else {str(getattr(settings, name))}


@app.command()
def down(state: State = None) -> None:
    """Stop the private directory; its data stay."""
    with failing_clearly():
        typer.echo("stopped" if _embedded(state).stop() else "it was not running")


@app.command()
def status(state: State = None, as_json: AsJson = False) -> None:
    """Show whether the private directory runs.

    Exit codes: 0 it answers; 1 it runs and does not answer; 2 it is not running."""
    found = _embedded(state).status()
    if as_json:
        print_document(asdict(found))
    elif not found.created:
        typer.echo("there is none: create one with 'mqenterprise directory up'")
    elif found.pid is None:
        typer.echo(f"{found.url} is stopped: start it with 'mqenterprise directory up'")
    else:
        answers = "answers" if found.answering else "does not answer"
        typer.echo(f"{found.url} {answers} (process {found.pid}, {found.bytes_on_disk / 1e6:.1f} MB)")
    if found.pid is None:
        raise typer.Exit(SOMETHING_TO_DO)
    if not found.answering:
        raise typer.Exit(FAILED)


@app.command()
def backup(
    target: Annotated[Path | None, typer.Argument(help="Archive to write. Default: a name made from the time.")] = None,
    state: State = None,
) -> None:
    """Write data and keys to one archive that only you can read. The directory may run meanwhile."""
    now = datetime.datetime.now(datetime.UTC)
    target = target or Path(f"directory-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    with failing_clearly():
        try:
            entries = _embedded(state).backup(target)
        except OSError as error:
            raise DirectoryError(f"{target} cannot be written: {error.strerror}") from error
    typer.echo(f"{entries} entries in {target}; it holds private keys, keep it where nobody else reads it")


@app.command()
def restore(
    source: Annotated[Path, typer.Argument(help="Archive that 'backup' wrote.")],
    state: State = None,
    force: Annotated[bool, typer.Option("--force", help="Move existing data aside.")] = False,
) -> None:
    """Restore a backup. Stop the private directory first, and start it afterwards."""
    if not source.exists():
        complain(f"{source} does not exist")
        raise typer.Exit(FAILED)
    with failing_clearly():
        _embedded(state).restore(source, force=force)
    typer.echo("restored: start it with 'mqenterprise directory up'")


@app.command()
def prepare(
    directory: DirectoryFile = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only show whether there is something to do (exit code 2).")
    ] = False,
) -> None:
    """Create the entries that every enterprise needs in an empty directory. Existing entries stay as they are."""
    with failing_clearly(), opened(directory) as opened_directory:
        try:
            opened_directory.enterprise()
        except ObjectNotFound as error:
            if check:
                typer.echo(f"to be prepared: {error}")
                raise typer.Exit(SOMETHING_TO_DO) from None
            opened_directory.prepare()
            typer.echo("prepared")
            return
        typer.echo("nothing to do")


@app.command("admit")
def admit_(
    computer: Annotated[str, typer.Argument(help="NetBIOS name of the node's computer.")],
    output: Annotated[Path, typer.Option(help="Folder for the settings and the password that the node binds with.")],
    directory_file: DirectoryFile = None,
    new: Annotated[
        bool, typer.Option("--new", help="Also admit a computer that has no queue manager in the directory yet.")
    ] = False,
) -> None:
    """Give a computer's node an identity in the directory, with which it can write its own objects and no others."""
    with opened(directory_file) as directory:
        node = admit(directory, computer, output, new=new)
        typer.echo(f"{node.full_path} may bind with {output / SETTINGS_FILE}")
        others = hash_clear_passwords(directory.connection)
        if others:
            typer.echo(f"{others} password{'s' if others > 1 else ''} of other nodes lay in clear and are hashed now")
