"""Settings of message security: each default with its section, or the reason why it differs."""

from enum import StrEnum
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from qmnode.structures.enumerations import AuthenticationLevel, HashAlgorithm


class WeakAlgorithm(StrEnum):
    """Algorithms that the specification allows and that are no longer secure."""

    MD2 = "MD2"
    MD4 = "MD4"
    MD5 = "MD5"
    SHA1 = "SHA1"
    RC2 = "RC2"
    RC4 = "RC4"
    RSA_512 = "RSA-512"
    """RSA keys of fewer than 1,024 bits: the key of the base provider."""


class UnsignedSenders(StrEnum):
    """The unsigned messages whose SID counts for the access list of a queue."""

    NEVER = "never"
    """None: the sender of an unsigned message is anonymous."""
    NEIGHBOURS = "neighbours"
    """Messages that their own queue manager brings over TLS, with a certificate that names it."""
    PLAIN_PEERS = "plain-peers"
    """These, and messages that a machine of ``tls.plain_peers`` brings itself, from its own address."""


class TlsMode(StrEnum):
    """A node's treatment of peers without a declaration. The listening port accepts TLS in each mode."""

    OFFER = "offer"
    """Connect in clear, and use TLS only where that is refused; accept both kinds of connections."""
    PREFER = "prefer"
    """Connect with TLS, and in clear where a peer has never used TLS; accept both kinds of connections, but not in
    clear in the name of a queue manager that has opened one with TLS before."""
    REQUIRE = "require"
    """Nothing in clear, except with ``plain_peers``."""


class TlsSettings(BaseModel):
    """TLS on the TCP transport between nodes: not part of the specification, off by default. Read again on a reload."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    certificate: Path
    """This node's certificate and any intermediate ones, PEM. Its name is the host's."""
    private_key: Path
    """The certificate's private key, PEM, mode 0600."""
    authorities: Path | None = None
    """The trusted certificate authorities, PEM. Not set where certificates are ``pinned``."""
    mode: TlsMode = TlsMode.OFFER
    """The treatment of peers that are neither in ``peers`` nor in ``plain_peers``."""
    peers: frozenset[str] = frozenset()
    """Host names and addresses of nodes that use TLS too, or ``*`` for all. Nothing is sent to them in clear, and
    nothing is accepted in clear from the addresses. A host name does not affect connections that are opened to this
    node.
    """
    plain_peers: frozenset[str] = frozenset()
    """Machines with unencrypted connections in any mode, as Windows has: computer names, host names and addresses, and
    ``site:NAME`` for all machines of a site. They go before ``*`` in ``peers``, not before a name in it."""
    pinned: dict[str, Path] = {}
    """Without an authority: host names and addresses of peers, and the file with each one's own certificate (PEM, which
    names its queue manager). Nothing is sent to them or accepted from them in clear."""
    require_identity: bool = False
    """Whether the certificate of a peer must name its queue manager, as the URI ``urn:uuid:`` and its GUID. If a
    certificate names one, the peer cannot claim to be another in any case.
    """

    @model_validator(mode="after")
    def _check_trust(self) -> Self:
        if (self.authorities is None) is not bool(self.pinned):
            raise ValueError("give either authorities (a file) or pinned (a file for each peer), and not both")
        both = {peer.lower() for peer in self.peers | self.pinned.keys()} & {peer.lower() for peer in self.plain_peers}
        if both:
            raise ValueError(
                f"{', '.join(sorted(both))}: both in plain_peers and in peers or pinned; take it out of one"
            )
        if "*" in self.plain_peers:
            raise ValueError("plain_peers cannot be '*': use mode: offer to speak in clear with all")
        return self


class SignerSettings(BaseModel):
    """The key and certificate that sign a Linux user's messages when they ask for authentication."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    private_key: Path
    """The user's private key, PKCS #8 in DER or PEM: a file that only the node's user may read."""
    certificate: Path | None = None
    """The certificate, DER or PEM. If not set, the user's newest one in the directory that matches the key."""


class SecuritySettings(BaseModel):
    """Signing, encryption, authentication and decryption of messages. Lifetimes are in milliseconds, as in the ADM."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weak_algorithms_sent: frozenset[WeakAlgorithm] = frozenset()
    """Weak algorithms that outgoing messages may use, and weak keys created here. The specification allows all."""
    weak_algorithms_accepted: frozenset[WeakAlgorithm] = frozenset()
    """Weak algorithms accepted in received messages: others' signatures do not verify, nor bodies decrypt."""

    hash_algorithm: HashAlgorithm = HashAlgorithm.SHA_512
    """The hash of a signature unless the message asks for another: MS-MQMQ 2.2.19.3 and its note 7."""
    signatures_accepted: frozenset[AuthenticationLevel] = frozenset(
        {AuthenticationLevel.SIG10, AuthenticationLevel.SIG20, AuthenticationLevel.SIG30}
    )
    """The kinds of signature that authenticate a received message. The one of MSMQ 1.0 (SIG10) does not cover the
    destination: anyone who has such a message can send it to another queue.
    """
    send_enhanced_rc2_using_40_bit_keys: bool = False
    """SendEnhancedRC2Using40BitKeys, MS-MQQB 3.1.3.1: reduce RC2 keys to 40 bits when encrypting."""
    reject_enhanced_rc2_using_40_bit_keys: bool = False
    """RejectEnhancedRC2Using40BitKeys, MS-MQQB 3.1.3.1: refuse messages with RC2 keys of 40 bits."""

    user_cert_lifetime: int = Field(default=1_200_000, ge=1)
    """UserCertLifetime, MS-MQQB 3.1.3.1: how long a revoked certificate may still be believed."""
    symmetric_key_short_lifetime: int = Field(default=600_000, ge=1)
    """SymmetricKeyShortLifetime, MS-MQQB 3.1.3.1: the time for which one session key encrypts to a computer."""
    public_key_lifetime: int = Field(default=600_000, ge=1)
    """The time for which another computer's keys from the directory are cached. MS-MQQB 3.1.7.1.5 reads them once per
    session, which would never learn of a new key; a rotation waits for this bound.
    """

    longest_time_to_reach_queue: int = Field(default=345_600, ge=1, le=0x7FFF_FFFF)
    """Seconds that an encrypted message may be in transit, even if it asks for longer: 4 days, as the enterprise's own
    default (mSMQLongLived). The receiver keeps the private key exactly that long.
    """

    clock_skew: int = Field(default=300, ge=0)
    """Seconds by which the clocks of two computers may differ when a message's sent time is compared with a key's or a
    certificate's dates."""
    superseded_key_grace: int = Field(default=86_400, ge=0)
    """Seconds after the publication of a new key during which a sender may still use the previous one, because of
    directory replication and caches. This decides which private key is tried first, and whether RC4 is unambiguous.
    """

    tls: TlsSettings | None = None

    everyone_includes_anonymous: bool = True
    """Whether a sender without an identity counts as a member of Everyone (S-1-1-0). Windows has not counted it since
    XP. But then no new queue of a workgroup (MS-MQDMPR 3.1.7.1.3.1: Everyone may do all) would accept a message before
    an entry for ANONYMOUS LOGON is added, as messages to direct names prove no identity. A queue that must know its
    senders asks for authentication.
    """
    anonymous_sends_elsewhere: bool = False
    """Whether anonymous clients of the AMQP door may send to queues of other machines, as clients with a name may."""
    send_sender_identifiers: bool = True
    """Whether unsigned messages name the SID of the local user, of a domain, that sends them (MS-MQDMPR 3.1.1.12)."""
    unsigned_senders: UnsignedSenders = UnsignedSenders.NEVER
    """The queue managers whose word counts for the SID in an unsigned message; in MS-MQQB 3.1.5.8.3 everybody's. Only
    accounts of domains count, and in a domain only those that the directory has.
    """
    unsigned_senders_by_queue: dict[str, UnsignedSenders] = {}
    """Path names of queues, and the value of ``unsigned_senders`` for each; ``orders`` is short for
    ``.\\private$\\orders``."""
    key_reload_interval: float = Field(default=60.0, gt=0)
    """Seconds between two readings of the key store. A rotation publishes a new key only after every node has read it:
    the ``reload_interval`` of ``mqenterprise keys`` must be no shorter.
    """
    key_store: str = "file"
    """The name of the installed key store with the private keys (entry point group ``qmnode.key_store``)."""
    key_store_settings: dict[str, str] = {}
    """That store's own settings. The store named ``file`` has ``path`` (by default ``keys`` in the node's directory)
    and ``passphrase_file``, a file that only its owner may read.
    """

    account_security_identifiers: dict[str, str] = {}
    """Linux user names and their SIDs (S-1-...), for nodes and users that the directory does not know."""
    principals: dict[str, str] = {}
    """SIDs of users and groups of this machine, for access checks: ``uid:1000``, ``user:alice``, ``gid:50`` or
    ``group:ops``, and ``S-1-...``. Without one a user is the directory's of the same name, or S-1-22-1-UID, and a group
    S-1-22-2-GID."""
    administrators: tuple[str, ...] = ("uid:0", "node")
    """The users that may read and change any queue's permissions, and take queues over, to repair queues that lock
    everybody out. Users and groups as in ``principals``, SIDs, and ``node`` for the user that the node runs as."""
    principal_lifetime: float = Field(default=60.0, ge=0)
    """Seconds for which a local user's SID and groups are remembered."""
    signers: dict[str, SignerSettings] = {}
    """Linux user names, and the keys that sign their messages that ask for authentication. The user is the one at the
    other end of the application's socket, as the kernel reports it.
    """
