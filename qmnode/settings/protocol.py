"""The settings of the binary protocol: each default with its section of MS-MQQB. Durations are in seconds."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from qmnode.settings.units import Bytes

_Seconds = Annotated[int, Field(ge=1)]


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SessionSettings(_Settings):
    """The initial values of every session of a queue manager."""

    window_size: int = Field(default=64, ge=1, le=0x3FFF)
    """WindowSize, 3.1.3.2. The limit keeps 16-bit sequence numbers unambiguous."""
    window_growth: int = Field(default=8, ge=1, le=0x3FFF)
    """The most times WindowSize that a window grows to while the acknowledgments of a whole window come within a tenth
    of a second. The peer must announce as much; Windows does not.
    """
    ack_wait_timeout_ms: int = Field(default=20_000, ge=0x4E20, le=0x1D4C0)
    """AckWaitTimeout in milliseconds, 3.1.3.2 note 51 and 2.2.2.1; sent as AckTimeout."""
    cleanup_interval: float = Field(default=300.0, gt=0)
    """Session Cleanup Timer, 3.1.2.2 note 44. A routing server uses 120 if it is not set."""

    def of_routing_server(self) -> Self:
        """The same with a routing server's defaults: explicit values stay."""
        if "cleanup_interval" in self.model_fields_set:
            return self
        return self.model_copy(update={"cleanup_interval": 120.0})


class TransferSettings(_Settings):
    """Message transfer beyond the single session."""

    resend_timeouts: tuple[_Seconds, _Seconds, _Seconds, _Seconds] = (30, 300, 1_800, 21_600)
    """Seconds of ResendTimeoutsShort, Medium and Long, 3.1.1.3: three intervals each of the ResendTimerTable; and of
    ResendTimeoutsFinal: all other intervals."""
    order_ack_timeout: float = Field(default=0.5, gt=0)
    """OrderAckTimeout in seconds, 3.1.3.2."""
    maximum_order_ack_delay: float = Field(default=10.0, ge=0)
    """MaximumOrderAckDelay, 3.1.3.2 note 52."""
    order_ack_every: int = Field(default=256, ge=1)
    """Send an order acknowledgment after this many messages without waiting for the timer; otherwise the sender keeps
    everything that it sends in ten seconds. When a sixteenth of that came quickly, the acknowledgment is sent after a
    tenth of OrderAckTimeout.
    """
    history_retention: int = Field(default=1_800, ge=1)
    """MessageIDHistory Cleanup Timer, 3.1.2.8 note 47: entries live at least this long."""
    history_sparse_pages: int = Field(default=32_768, ge=1)
    """The most pages with fewer than 32 messages from one neighbour, whatever sources it names, beside full pages: each
    takes half a KiB of memory. Eight times as many for all neighbours.
    """
    history_sources: int = Field(default=65_536, ge=1)
    """The most source queue managers remembered."""
    incoming_sequences: int = Field(default=100_000, ge=1)
    """The most (source queue manager, destination name) pairs whose transactional messages are tracked. Half of them
    are for declared peers.
    """
    incoming_sequences_per_neighbour: int = Field(default=50_000, ge=1)
    """The most of them for one declared source or one address block; for a block a tenth of all at most."""
    sequence_clock_tolerance: int = Field(default=86_400, ge=0)
    """Seconds by which the time stamp in the identifier of a transactional sequence may lie in the future."""
    only_registered_addresses: bool = True
    """Whether packets in the name of a machine of the directory are believed only from an address that its name
    resolves to. Set to false where addresses are translated on the way, or machines have addresses without a name. Then
    any host can have a routing server forward messages in the name of such a machine, and can report how that machine's
    messages ended.
    """
    send_insecure_nacks: bool = False
    """SendInsecureNacks, 3.1.1.3 note 28 and section 5.1."""
    tell_enterprise_of_denied_access: bool = False
    """Whether senders of the enterprise get NACK_ACCESS_DENIED although ``send_insecure_nacks`` is off: for messages
    that a neighbour brings which is known to speak for their source. 5.1 keeps it from strangers.
    """
    retry_interval: float = Field(default=5.0, gt=0)
    """Session Retry Connect Timer, 3.1.2.3 note 45."""
    retry_maximum: float = Field(default=60.0, gt=0)
    """The maximum of the adaptive reconnection time-out that 3.1.2.3 allows."""

    drain_time: float = Field(default=5.0, ge=0)
    """Seconds for which a stopping node continues to send messages on their way, while it accepts nothing more."""
    better_hop_interval: float = Field(default=60.0, gt=0)
    """Seconds between checks for a better next hop while messages use a fall-back."""
    directory_answer_timeout: float = Field(default=4.0, gt=0, le=600)
    """Seconds that an application waits for the directory when it opens a public queue that is not known here yet."""
    unknown_machine_patience: int = Field(default=1_800, ge=0, le=604_800)
    """Seconds that passing messages wait here for a machine that the directory does not show yet, before they are
    refused: longer than a change takes to reach this node's directory. 0 refuses them at once.
    """
    unknown_machine_messages: int = Field(default=1_000, ge=1)
    """Messages for such machines from one neighbour; four times that for all undeclared (docs/reference/shares.md)."""
    unknown_machine_bytes: Bytes = Field(default=16 * 1024 * 1024, ge=1)
    """The most bytes of such messages, likewise."""
    routing_refresh: float = Field(default=300.0, gt=0)
    """Seconds between readings of sites, routing links and queue managers, beside the directory's notices of change."""

    def resend_table(self) -> tuple[int, ...]:
        """The table of resend intervals: ResendTimerTable, 3.1.3.1."""
        *earlier, final = self.resend_timeouts
        return (*(seconds for seconds in earlier for _ in range(3)), final)
