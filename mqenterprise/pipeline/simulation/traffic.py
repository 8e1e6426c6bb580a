"""The settings of a simulation: behaviour of links, load of queues, speed of receivers."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from qmnode.errors import ConfigurationError
from qmnode.settings.yaml_text import read_yaml

Share = Annotated[float, Field(ge=0, lt=1)]
Seconds = Annotated[float, Field(ge=0)]


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Outage(_Model):
    """A period in which a link is down, in seconds after the start."""

    begins: Seconds
    ends: Seconds


class LinkBehaviour(_Model):
    """The delay and loss of a link. Times are in seconds."""

    delay: Seconds = 0.02
    jitter: Seconds = Field(default=0.01, description="Up to so much more, evenly spread")
    loss: Share = Field(default=0.0, description="The share of attempts that is lost and made again")
    retry: Seconds = Field(default=1.0, description="Until a lost attempt is made again")
    outages: tuple[Outage, ...] = ()


class SimulatedLink(LinkBehaviour):
    """A routing link that differs from the others."""

    sites: tuple[str, str]


class Load(_Model):
    """Messages to one queue."""

    queue: str = Field(description="A declared queue as MACHINE\\QUEUE; one that is not declared refuses all")
    senders: tuple[str, ...] = Field(default=(), description="Machines that send; all others if there are none")
    weight: Annotated[float, Field(gt=0)] = Field(default=1.0, description="Its part of all messages")
    size: tuple[int, int] = Field(default=(500, 4000), description="Bytes, at least and at most")
    time_to_reach_queue: Annotated[int, Field(gt=0)] | None = Field(default=None, description="Seconds")
    time_to_be_received: Annotated[int, Field(gt=0)] | None = Field(default=None, description="Seconds, once there")
    refused: Share = Field(default=0.0, description="The share that the queue denies access to")
    encrypted: bool = False
    acknowledged: bool = Field(default=False, description="The sender asks for acknowledgments of all that happens")


class Receiver(_Model):
    """The speed at which the messages of a queue are received; 0: never."""

    queue: str
    per_second: Annotated[float, Field(ge=0)]


class Rotation(_Model):
    """A machine that changed its key, and senders that did not notice. Times are in seconds after the start."""

    machine: str
    at: Seconds
    unaware: tuple[str, ...] = ()


class Traffic(_Model):
    """The settings of a simulation. Everything has a default, so that an empty file is valid."""

    start: Annotated[datetime, AfterValidator(_utc)] = datetime(2026, 1, 1, tzinfo=UTC)
    seconds: Annotated[int, Field(gt=0)] = 86_400
    messages: Annotated[int, Field(gt=0)] = 100_000
    seed: int = 1
    link: LinkBehaviour = LinkBehaviour()
    within_site: LinkBehaviour = LinkBehaviour(delay=0.001, jitter=0.001)
    links: tuple[SimulatedLink, ...] = ()
    loads: tuple[Load, ...] = Field(default=(), description="Without any: the same load to each declared queue")
    per_second: Annotated[float, Field(ge=0)] = Field(default=100.0, description="What every receiver takes")
    receivers: tuple[Receiver, ...] = ()
    rotations: tuple[Rotation, ...] = ()
    sample_every: Annotated[int, Field(gt=0)] = Field(default=600, description="Seconds between samples of queues")
    rows_in_segment: Annotated[int, Field(gt=0, le=1 << 20)] = 1 << 18

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a YAML file. ConfigurationError names the fault and its place."""
        try:
            return cls.model_validate(read_yaml(path.read_text("utf-8")) or {})
        except ValidationError as error:
            faults = "; ".join(
                f"{'.'.join(map(str, fault['loc']))}: {fault['msg'].lower()}" for fault in error.errors()
            )
            raise ConfigurationError(f"{path}: {faults}") from None
        except (OSError, yaml.YAMLError) as error:
            raise ConfigurationError(f"{path}: {error}") from error
