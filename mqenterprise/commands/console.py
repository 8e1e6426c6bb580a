"""``mqenterprise console``: the whole enterprise in a browser."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from mqenterprise.commands.chosen_nodes import NodesFile, failing_with_sentence
from mqenterprise.commands.directory_option import DirectoryFile, directory_settings, failing_clearly
from mqenterprise.console.enterprise import DirectoryEnterprise, check
from mqenterprise.console.moving import Moving
from mqenterprise.console.people import LdapPeople, OpenIdProvider, Signer, SignInSettings, load_sign_in
from mqenterprise.console.server import listener, serve
from mqenterprise.operations.settings import load_settings, split_address
from qmnode.console.app import Console
from qmnode.console.port import Ways

app = typer.Typer(add_completion=False)

_PORT = 8480


@app.command()
def console(
    listen: Annotated[str, typer.Option(metavar="ADDRESS:PORT", help="Where browsers find it.")] = f"127.0.0.1:{_PORT}",
    certificate: Annotated[
        Path | None, typer.Option(help="PEM file of its certificate; needed for other addresses than 127.0.0.1.")
    ] = None,
    private_key: Annotated[Path | None, typer.Option(help="PEM file of the certificate's key.")] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="Name that browsers know this server by, beside its address; may be given again."),
    ] = None,
    path: Annotated[str, typer.Option(help="Path below which a proxy shows it.")] = "/",
    declared: Annotated[
        Path | None, typer.Option(help="Declaration (YAML file or directory of them) to compare the directory with.")
    ] = None,
    survey: Annotated[
        Path | None,
        typer.Option(help="Folder that `mqenterprise survey` wrote, to show how far the move from Windows is."),
    ] = None,
    plans: Annotated[Path | None, typer.Option(help="Folder of the plans of `mqenterprise switch`.")] = None,
    sign_in: Annotated[
        Path | None,
        typer.Option(
            help="YAML file of ways to sign in beside tokens: LDAP, OpenID Connect. docs/console.md describes it."
        ),
    ] = None,
    nodes_file: NodesFile = None,
    directory_file: DirectoryFile = None,
) -> None:
    """Serve the console: the enterprise of the directory, for people who sign in, in a browser.

    It runs until it is stopped with Ctrl-C.
    """
    if (certificate is None) is not (private_key is None):
        raise typer.BadParameter("--certificate and --private-key go together")
    if plans is not None and survey is None:
        raise typer.BadParameter("--plans needs --survey, whose queues the plans move", param_hint="--plans")
    with failing_with_sentence(), failing_clearly():
        settings = load_settings(nodes_file)
        check(settings)
        directory_settings(directory_file)  # its mistakes are reported here, and not in the browser
        try:
            address, port = split_address(listen, _PORT)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--listen") from None
        address = address.strip("[]")
        tls = certificate is not None
        bound = listener(address, port, tls=tls)
        moving = None if survey is None else Moving(survey, plans)
        if moving is not None:
            moving.report()
        enterprise = DirectoryEnterprise(settings, lambda: directory_settings(directory_file), declared, moving)
        served = Console(
            enterprise,
            [address, "localhost", *(host or ())],
            path=path,
            tls=tls,
            ways=None if sign_in is None else _ways(load_sign_in(sign_in)),
        )
        shown = f"[{address}]" if ":" in address else address
        place = f"{'https' if tls else 'http'}://{shown}:{bound.getsockname()[1]}/{path.strip('/')}"

        def started() -> None:
            typer.echo(f"The console is at {place.rstrip('/')}/ (Ctrl-C stops it).")

        asyncio.run(serve(served, bound, certificate, private_key, started))


def _ways(settings: SignInSettings) -> Ways:
    ldap, openid = settings.ldap, settings.openid
    return Ways(
        Signer(settings.name, settings.signing_key).credential,
        None if ldap is None else LdapPeople(ldap, directory_settings(ldap.directory)),
        None if openid is None else OpenIdProvider(openid),
        settings.groups_age,
    )
