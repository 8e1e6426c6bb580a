"""The option ``--where NAME=VALUE``, given once for each thing that must be true of a message."""

import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from qmnode.administration.where import WHERE_HELP, parse_where
from qmnode.errors import MessageQueuingError

WhereOption = Annotated[list[str] | None, typer.Option("--where", "-w", metavar="NAME=VALUE", help=WHERE_HELP)]


def criteria(where: Sequence[str] | None) -> dict[str, Any]:
    """The criteria that ``--where`` means, as the node takes them."""
    try:
        return parse_where(where or (), time.time())
    except MessageQueuingError as error:
        raise typer.BadParameter(error.sentence, param_hint="--where") from None
