"""The settings of the binary protocol: each default with its section of MS-MQQB. Durations are seconds if not said."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from qmnode.settings.units import Bytes


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SessionSettings(_Settings):
    """What every session of a queue manager starts with."""

    window_size: int = Field(default=64, ge=1, le=0x3FFF)
    """WindowSize, 3.1.3.2. The limit keeps 16-bit sequence numbers unambiguous."""
    ack_wait_timeout_ms: int = Field(default=20_000, ge=0x4E20, le=0x1D4C0)
    """AckWaitTimeout in milliseconds, 3.1.3.2 note 51 and 2.2.2.1; sent as AckTimeout."""
    direct_ack_wait_factor: int = Field(default=2, ge=1)
    """How many AckWaitTimeouts a session for a direct format name waits, 3.1.2.4 note 46."""
    initialization_timeout: float = Field(default=60.0, gt=0)
    """Session Initialization Timer, 3.1.2.1 note 43."""
    cleanup_interval: float = Field(default=300.0, gt=0)
    """Session Cleanup Timer, 3.1.2.2 note 44. Where nothing is set it is 120 on a routing server."""
    maximum_packet_size: Bytes = Field(default=0x0040_0000, ge=1024, le=0x0040_0000)
    """Larger packets close the session; MS-MQMQ 2.2.19.1 allows 4 MiB."""
    server_class: bool = True
    """EstablishConnectionHeader.OperatingSystem.OS, 2.2.3.1."""
    acknowledge_every: int = Field(default=16, ge=1)
    """Send a SessionAck when so many messages are settled and not yet acknowledged, at most a quarter of the window.
    The timers alone would let the sender's window starve for half an AckWaitTimeout."""

    def of_routing_server(self) -> Self:
        """The same with a routing server's defaults: what is set stays."""
        if "cleanup_interval" in self.model_fields_set:
            return self
        return self.model_copy(update={"cleanup_interval": 120.0})


class TransferSettings(_Settings):
    """What the transfer of messages beside the sessions is told."""

    resend_short: int = Field(default=30, ge=1)
    """ResendTimeoutsShort, 3.1.1.3: the first three intervals of the ResendTimerTable."""
    resend_medium: int = Field(default=300, ge=1)
    """ResendTimeoutsMedium: the next three."""
    resend_long: int = Field(default=1_800, ge=1)
    """ResendTimeoutsLong: the next three."""
    resend_final: int = Field(default=21_600, ge=1)
    """ResendTimeoutsFinal: all others."""
    order_ack_timeout: float = Field(default=0.5, gt=0)
    """OrderAckTimeout, 3.1.3.2."""
    maximum_order_ack_delay: float = Field(default=10.0, ge=0)
    """MaximumOrderAckDelay, 3.1.3.2 note 52."""
    order_ack_every: int = Field(default=256, ge=1)
    """Send an order acknowledgment after so many messages without waiting for the timer, or the sender keeps all that
    it sends in ten seconds. When a sixteenth of it came quickly, it comes after a tenth of OrderAckTimeout."""
    history_retention: int = Field(default=1_800, ge=1)
    """MessageIDHistory Cleanup Timer, 3.1.2.8 note 47: entries live at least so long."""
    history_pages_per_source: int = Field(default=131_072, ge=1)
    """Most pages of 1,024 message identifiers that one source queue manager may occupy."""
    history_sparse_pages: int = Field(default=32_768, ge=1)
    """Most pages with fewer than 32 messages that one neighbour may bring, whatever sources it names, beside those that
    are full: each takes half a KiB of memory. Eight times as many for all neighbours."""
    history_sources: int = Field(default=65_536, ge=1)
    """Most source queue managers remembered."""
    incoming_sequences: int = Field(default=100_000, ge=1)
    """Most (source queue manager, destination name) pairs whose transactional messages are tracked."""
    incoming_sequences_per_neighbour: int = Field(default=50_000, ge=1)
    """Most of them that one address brings: half, so that whoever invents source queue managers leaves places for the
    others."""
    notice_lifetime: int = Field(default=345_600, ge=1, le=0xFFFF_FFFE)
    """Seconds that an administration acknowledgment may be under way: 4 days, as messages by default. 3.1.7.15 lets it
    wait for ever."""
    sequence_clock_tolerance: int = Field(default=86_400, ge=0)
    """Seconds by which the time stamp in the identifier of a transactional sequence may lie in the future."""
    only_registered_addresses: bool = True
    """Whether what a machine of the directory says comes from an address that its name resolves to. False where
    addresses are translated on the way or machines have some that no name has: then anybody can have a routing server
    pass on messages in the name of such a machine, and can say how its messages ended."""
    send_insecure_nacks: bool = False
    """SendInsecureNacks, 3.1.1.3 note 28 and section 5.1."""
    retry_interval: float = Field(default=5.0, gt=0)
    """Session Retry Connect Timer, 3.1.2.3 note 45."""
    retry_maximum: float = Field(default=60.0, gt=0)
    """The adaptive reconnection time-out that 3.1.2.3 allows does not grow past this."""

    drain_time: float = Field(default=5.0, ge=0)
    """How long a node that is told to stop goes on sending what is on its way, while it takes nothing more."""
    better_hop_interval: float = Field(default=60.0, gt=0)
    """While messages go by a fall-back, look so often whether a better next hop is back."""
    directory_answer_timeout: float = Field(default=4.0, gt=0, le=600)
    """Seconds that an application waits for the directory when it opens a public queue that is not known here yet."""
    unknown_machine_patience: int = Field(default=1_800, ge=0, le=604_800)
    """Seconds that messages on their way wait here for a machine that the directory does not show yet, before they are
    refused: longer than a change takes to reach this node's directory. 0 refuses them at once."""
    unknown_machine_messages: int = Field(default=1_000, ge=1)
    """Most messages for such machines that one neighbour may leave here. Four times as many for all that are not
    declared (docs/security.md)."""
    unknown_machine_bytes: Bytes = Field(default=16 * 1024 * 1024, ge=1)
    """Most bytes of them, likewise."""
    routing_refresh: float = Field(default=300.0, gt=0)
    """Read sites, routing links and queue managers again so often, beside the directory's own notices of change."""

    def resend_table(self) -> tuple[int, ...]:
        """ResendTimerTable, 3.1.3.1."""
        return (
            *(self.resend_short,) * 3,
            *(self.resend_medium,) * 3,
            *(self.resend_long,) * 3,
            self.resend_final,
        )
