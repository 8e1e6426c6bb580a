"""``mqenterprise survey``: an estate of Windows Message Queuing, read and judged before it moves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mqenterprise.commands.directory_option import (
    FAILED,
    AsJson,
    directory_settings,
    failing_clearly,
    log_to_stderr,
    print_document,
)
from mqenterprise.survey.estate import SurveyError
from mqenterprise.survey.machines import Asking
from mqenterprise.survey.run import DECLARATION, PAGE, REPORT, Survey, check_output, options_of, survey
from qmnode.commands.error_line import complain
from qmnode.commands.output import counted
from qmnode.commands.remote import PasswordFileOption, UserOption
from qmnode.structures.text import printable

app = typer.Typer(add_completion=False)


@app.command("survey", epilog="Example: mqenterprise survey --directory contoso.yaml --export winshop.json")
def survey_command(
    output: Annotated[Path, typer.Option(help="New folder for the declaration and the report.")] = Path("survey"),
    name: Annotated[str, typer.Option(help="The enterprise's name.")] = "Enterprise",
    directory: Annotated[
        list[Path] | None,
        typer.Option(
            help="YAML file of a directory's settings; again for each further domain. Default: as for other commands."
        ),
    ] = None,
    no_directory: Annotated[bool, typer.Option("--no-directory", help="There is none: a workgroup.")] = False,
    export: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Get-MsmqQueue or Get-MsmqQueueACL as JSON, a CSV, or endpoints of NServiceBus; may be given again.",
        ),
    ] = None,
    machine: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=HOST[:PORT]",
            help="Where a machine is asked, if not at its DNS name; PORT is its endpoint mapper's. May be given again.",
        ),
    ] = None,
    user: UserOption = "",
    password_file: PasswordFileOption = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the machines' endpoint mappers.")] = 135,
    sample: Annotated[int, typer.Option(min=0, help="Messages of each queue to look at; 0 for none.")] = 100,
    timeout: Annotated[float, typer.Option(min=1, max=3600, help="Seconds for one machine.")] = 30,
    watch: Annotated[float, typer.Option(min=0, max=600, help="Seconds between two looks at the counts.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Read what is there, and change nothing: directory, Windows queue managers, and files that Windows wrote.

    It writes a declaration, and a report as a page and as JSON: what is in each queue, what nodes do not have, the risk
    of each move, and their order. Machines that do not answer are named, and do not stop it.
    """
    if no_directory and directory:
        raise typer.BadParameter("--no-directory and --directory exclude each other")
    if (password_file is None) != (not user or "@" in user):
        raise typer.BadParameter("--user and --password-file go together; only USER@REALM has tickets instead")
    log_to_stderr()
    try:
        check_output(output)
        hosts = dict(_host(text) for text in machine or ())
        with failing_clearly():
            settings = [] if no_directory else [directory_settings(file) for file in directory or (None,)]
            options = options_of(user, password_file, port)
            asking = Asking(options, timeout=max(timeout, 2 * watch), sample=sample, watch=watch)
            found = survey(Survey(name, settings, tuple(export or ()), hosts, asking))
        found.write(output)
    except SurveyError as error:
        complain(str(error))
        raise typer.Exit(FAILED) from None
    totals = found.report["totals"]
    for one in found.report["machines"]:
        if one["reason"]:
            complain(f"{one['name']}: {one['reason']}")
    if as_json:
        files = {"declaration": DECLARATION, "report": REPORT, "page": PAGE}
        print_document({"totals": totals, **{what: str(output / file) for what, file in files.items()}})
        return
    silent = f" ({totals['machines_silent']:,} did not answer)" if totals["machines_silent"] else ""
    typer.echo(
        printable(
            f"{counted(totals['sites'], 'site')}, {counted(totals['machines'], 'queue manager')}{silent}, "
            f"{counted(totals['queues'], 'queue')} ({totals['private_queues']:,} private), "
            f"{counted(totals['messages'], 'message')}, {counted(len(found.report['formats']), 'format')} of bodies."
        )
    )
    typer.echo(printable(f"Declaration: {output / DECLARATION}. Report: {output / PAGE}, {output / REPORT}."))


def _host(text: str) -> tuple[str, str]:
    name, equals, host = text.partition("=")
    if not name or not host or not equals:
        raise SurveyError(f"--machine {text}: write NAME=HOST, or NAME=HOST:PORT")
    return name, host
