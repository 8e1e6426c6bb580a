"""Many small cases in one test: pytest takes longer for a test than most of them do."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


def cases(
    names: str | Sequence[str], values: Iterable[Any], ids: Callable[[Any], object] | Sequence[object] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As ``pytest.mark.parametrize``, but one test tries all cases, and fails with those that failed.

    For tests that need no fixture of their own for each case.
    """
    given = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    every = [tuple(value) if len(given) > 1 else (value,) for value in values]

    def label(number: int, case: tuple[Any, ...]) -> object:
        if callable(ids):
            return "-".join(str(ids(value)) for value in case)
        return ids[number] if ids is not None else repr(case)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def tried(*arguments: Any, **fixtures: Any) -> None:
            failed: list[Exception] = []
            for number, case in enumerate(every):
                try:
                    test(*arguments, **fixtures, **dict(zip(given, case, strict=True)))
                except Exception as error:
                    error.add_note(f"case {number}: {label(number, case)}")
                    failed.append(error)
            if failed:
                raise ExceptionGroup(f"{len(failed)} of {len(every)} cases", failed)

        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in given]
        tried.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return tried

    return decorate
