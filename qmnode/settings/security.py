"""Settings of message security: each default with its section, or the reason why it differs."""

from enum import StrEnum
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from qmnode.structures.message_security import AuthenticationLevel, EncryptionAlgorithm, HashAlgorithm


class WeakAlgorithm(StrEnum):
    """What the specification lets a message use and what no longer protects it."""

    MD2 = "MD2"
    MD4 = "MD4"
    MD5 = "MD5"
    SHA1 = "SHA1"
    RC2 = "RC2"
    RC4 = "RC4"
    RSA_512 = "RSA-512"
    """RSA keys of fewer than 1,024 bits: the key of the base provider."""


class TlsMode(StrEnum):
    """How a node treats peers for which nothing else is declared. TLS is taken on the listening port in each mode."""

    OFFER = "offer"
    """Connect in clear, and with TLS only where that is turned away; take connections of both kinds."""
    PREFER = "prefer"
    """Connect with TLS, and in clear where a peer has never shown that it speaks TLS; take connections of both kinds,
    but not in clear in the name of a queue manager that has opened one with TLS before."""
    REQUIRE = "require"
    """Nothing in clear, except with ``plain_peers``."""


class TlsSettings(BaseModel):
    """TLS on the TCP transport between nodes: not of the specification, off by default. Read again on a reload."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    certificate: Path
    """This node's certificate and those between it and the authority, PEM. Its name is the host's."""
    private_key: Path
    """The certificate's private key, PEM, mode 0600."""
    authorities: Path | None = None
    """The authorities whose certificates are believed, PEM. Not set where certificates are ``pinned``."""
    mode: TlsMode = TlsMode.OFFER
    """How peers are treated that are neither in ``peers`` nor in ``plain_peers``."""
    peers: frozenset[str] = frozenset()
    """Host names and addresses of the nodes that announce TLS, too, or ``*`` for all. Nothing is sent to them and
    nothing is taken from them in clear."""
    plain_peers: frozenset[str] = frozenset()
    """Machines that speak in clear in any mode, as Windows does: computer names, host names and addresses, and
    ``site:NAME`` for all machines of a site. They go before ``*`` in ``peers``, not before a name in it."""
    pinned: dict[str, Path] = {}
    """Without an authority: host names and addresses of peers, and the file with each one's own certificate (PEM, which
    names its queue manager). Nothing is sent to them and nothing is taken from them in clear."""
    require_identity: bool = False
    """Whether the certificate of a peer has to name its queue manager, as the URI ``urn:uuid:`` and its GUID. Where a
    certificate names one, the peer is taken for no other in any case."""

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
    """What the messages of a Linux user are signed with when they ask for authentication."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    private_key: Path
    """The user's private key, PKCS #8 in DER or PEM: a file that only the node's user may read."""
    certificate: Path | None = None
    """The certificate, DER or PEM. Not set: the newest of the user in the directory that the key fits."""


class SecuritySettings(BaseModel):
    """How messages are signed, encrypted, authenticated and decrypted. Lifetimes are in milliseconds, as in the ADM."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weak_algorithms_sent: frozenset[WeakAlgorithm] = frozenset()
    """Weak algorithms that outgoing messages may use, and weak keys that this node makes. The specification allows all;
    none is safe today."""
    weak_algorithms_accepted: frozenset[WeakAlgorithm] = frozenset()
    """Weak algorithms in received messages: a signature made with one of them verifies, a body decrypts, only if it is
    named here."""

    hash_algorithm: HashAlgorithm = HashAlgorithm.SHA_512
    """What a signature is made with unless the message says otherwise: MS-MQMQ 2.2.19.3 and its note 7."""
    signatures_accepted: frozenset[AuthenticationLevel] = frozenset(
        {AuthenticationLevel.SIG10, AuthenticationLevel.SIG20, AuthenticationLevel.SIG30}
    )
    """The kinds of signature that authenticate a received message. One of MSMQ 1.0 (SIG10) does not cover the
    destination: whoever has such a message can send it to another queue."""
    preferred_advanced_algorithm: EncryptionAlgorithm = EncryptionAlgorithm.AES256
    """PreferredAdvancedAlgorithm, MS-MQQB 3.1.3.1."""
    preferred_enhanced_algorithm: EncryptionAlgorithm = EncryptionAlgorithm.RC4
    """PreferredEnhancedAlgorithm, MS-MQQB 3.1.3.1. Of no effect while RC4 is not in ``weak_algorithms_sent``."""
    preferred_base_algorithm: EncryptionAlgorithm = EncryptionAlgorithm.RC4
    """PreferredBaseAlgorithm, MS-MQQB 3.1.3.1. Of no effect while RC4 is not in ``weak_algorithms_sent``."""
    send_enhanced_rc2_using_40_bit_keys: bool = False
    """SendEnhancedRC2Using40BitKeys, MS-MQQB 3.1.3.1."""
    reject_enhanced_rc2_using_40_bit_keys: bool = False
    """RejectEnhancedRC2Using40BitKeys, MS-MQQB 3.1.3.1."""

    user_cert_cache_size: int = Field(default=53, ge=2)
    """UserCertCacheSize, MS-MQQB 3.1.3.1."""
    user_cert_lifetime: int = Field(default=1_200_000, ge=1)
    """UserCertLifetime, MS-MQQB 3.1.3.1: how long a revoked certificate may still be believed."""
    receive_symmetric_key_cache_size: int = Field(default=127, ge=2)
    """ReceiveSymmetricKeyCacheSize, MS-MQQB 3.1.3.1."""
    send_symmetric_key_cache_size: int = Field(default=53, ge=2)
    """SendSymmetricKeyCacheSize, MS-MQQB 3.1.3.1."""
    symmetric_key_short_lifetime: int = Field(default=600_000, ge=1)
    """SymmetricKeyShortLifetime, MS-MQQB 3.1.3.1: how long one session key encrypts the messages to one computer."""
    public_key_lifetime: int = Field(default=600_000, ge=1)
    """How long what the directory said about another computer's keys is used. MS-MQQB 3.1.7.1.5 reads it once in a
    session, which would never learn of a new key; this bound is what a rotation waits for."""

    longest_time_to_reach_queue: int = Field(default=345_600, ge=1, le=0x7FFF_FFFF)
    """Seconds that an encrypted message may be under way, however long it asks for: 4 days, as the enterprise's own
    default (mSMQLongLived). Who receives it keeps the private key that long, and no longer."""

    maximum_modulus_length: int = Field(default=8_192, ge=1_024)
    """Bits of the largest RSA key that is used: verifying with a larger one only costs time."""
    clock_skew: int = Field(default=300, ge=0)
    """Seconds by which the clocks of two computers may differ when a message's sent time is compared with a key's or a
    certificate's dates."""
    superseded_key_grace: int = Field(default=86_400, ge=0)
    """Seconds after a new key was published during which a sender may still have used the one before: replication of
    the directory and caches. It decides which private key is tried first, and whether RC4 is unambiguous."""

    tls: TlsSettings | None = None

    everyone_includes_anonymous: bool = True
    """Whether a sender without an identity counts as a member of Everyone (S-1-1-0). Windows says no since XP; but then
    no new queue of a workgroup (MS-MQDMPR 3.1.7.1.3.1: Everyone may do all) would take a message before an entry for
    ANONYMOUS LOGON is added, as messages to direct names prove no identity. A queue that must know its senders asks for
    authentication."""
    key_reload_interval: float = Field(default=60.0, gt=0)
    """Seconds between two readings of the key store. A rotation publishes a new key only after every node has read it:
    the ``reload_interval`` of ``mqenterprise keys`` must be no shorter."""
    key_store: str = "file"
    """Where private keys are: the name of an installed key store (entry point group ``qmnode.key_store``)."""
    key_store_settings: dict[str, str] = {}
    """That store's own settings. The one named ``file`` has ``path`` (by default ``keys`` in the node's directory) and
    ``passphrase_file``, a file that only its owner may read."""

    account_security_identifiers: dict[str, str] = {}
    """Linux user names and their SIDs (S-1-...), for nodes and users that the directory does not know."""
    signers: dict[str, SignerSettings] = {}
    """Linux user names, and what signs the messages for which they ask authentication. Who asks is the user at the
    other end of the application's socket, as the kernel says."""
