"""Names of computers that the shell completes: asked of the directory, and none if it does not answer at once."""

from pathlib import Path
from typing import Final

import typer  # at run time: the shell completion reads these annotations

_PATIENCE: Final = 2.0


def complete_computer(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of queue managers' computers that begin so."""
    from mqenterprise.commands.opening import directory_settings
    from mqenterprise.directory.service import EnterpriseDirectory

    try:
        file = ctx.params.get("directory_file")
        patient = {"connect_timeout": _PATIENCE, "operation_timeout": _PATIENCE}
        settings = directory_settings(Path(file) if file else None).model_copy(update=patient)
        with EnterpriseDirectory(settings) as directory:
            found = [one.computer_name for one in directory.queue_managers.list(attributes=("computer_name",))]
        return sorted(name for name in found if name.casefold().startswith(incomplete.casefold()))
    except Exception:  # a completing shell is no place to report an error
        return []
