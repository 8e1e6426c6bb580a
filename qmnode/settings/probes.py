"""Settings of probes: heartbeats that a node sends through the applications of an enterprise."""

import re
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

ProbeName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
_FORMAT_NAME: Final = re.compile(r"(DIRECT=(OS|TCP):[^;,]+|(PUBLIC|PRIVATE)=[0-9A-Fa-f-]{36}[^;,]*)", re.IGNORECASE)


class ProbeSettings(BaseModel):
    """A probe: the node sends marked messages to a queue, and expects its receiver to take each in time."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    queue: str = Field(max_length=512)
    """Format name of the queue, such as ``DIRECT=OS:beta\\private$\\orders``. Its access list has to permit it."""
    period: float = Field(default=60.0, ge=1, le=86_400)
    """Seconds from one message to the next."""
    deadline: float = Field(default=30.0, ge=1, le=86_400)
    """Seconds within which the message has to be received, or answered; at most the period."""
    expects: Literal["received", "answered"] = "received"
    """``answered``: the receiver answers to the response queue, with the message's identifier as correlation."""
    transactional: bool = False
    """Whether the queue is transactional."""
    links: Annotated[tuple[tuple[str, str], ...], Field(strict=False, max_length=100)] = ()
    """The routing links that the message has to cross, each as its two sites, and no others. Needs
    ``tracing.report_queue``, as a public queue of this node."""

    @field_validator("queue")
    @classmethod
    def _is_one_queue(cls, queue: str) -> str:
        if not _FORMAT_NAME.fullmatch(queue):
            raise ValueError(
                r"queue is the format name of one queue, such as DIRECT=OS:beta\private$\orders or PUBLIC= and a GUID"
            )
        return queue

    @model_validator(mode="after")
    def _ends_before_the_next(self) -> Self:
        if self.deadline > self.period:
            raise ValueError("deadline is longer than the period: let one message end before the next is sent")
        return self
