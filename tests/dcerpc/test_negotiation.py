"""SPNEGO without a wire (RFC 4178, MS-SPNG): how two sides agree, and what somebody between them cannot change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from spnego._spnego import NegState, NegTokenInit, NegTokenResp, unpack_token

from qmnode.dcerpc import ntlm
from qmnode.dcerpc.authentication import AcceptorAuthentication
from qmnode.dcerpc.negotiation import NTLM, NegotiationInitiator
from qmnode.dcerpc.protection import AuthenticationError, AuthenticationLevel, AuthenticationType
from qmnode.settings.remote_read import RemoteReadSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from qmnode.dcerpc.protection import SecurityContext

PRIVACY = AuthenticationLevel.PRIVACY
ALICE = r"CONTOSO\alice"
BETTER = ("1.2.3.4",)
"""A way to authenticate that the client prefers, and the server does not have."""
HEAD, BODY, TRAILER = b"header and head of the body", b"stub data" * 5, b"trailer"


def mechanism(password: str = "Secret-1") -> ntlm.NtlmContext:
    return ntlm.initiator_context("host", "there", ALICE, password, PRIVACY, 1)


@pytest.fixture
def acceptor(tmp_path: Path) -> SecurityContext:
    users = tmp_path / "users"
    users.write_text("CONTOSO:alice:Secret-1\n")
    users.chmod(0o600)
    return AcceptorAuthentication(RemoteReadSettings(users=users))(AuthenticationType.NEGOTIATE, PRIVACY, 1)


def shake_hands(
    initiator: SecurityContext,
    acceptor: SecurityContext,
    change: Callable[[int, bytes], bytes] = lambda _, token: token,
) -> int:
    """How many tokens that takes. ``change`` is who sits between the two."""
    token, sent = b"", 0
    while True:
        for side in (initiator, acceptor):
            token = side.step(token)
            if not token:
                return sent
            token = change(sent, token)
            sent += 1


def talk(initiator: SecurityContext, acceptor: SecurityContext) -> None:
    for _ in range(2):
        for sender, receiver in ((initiator, acceptor), (acceptor, initiator)):
            sealed, token = sender.protect(HEAD, BODY, TRAILER)
            assert sealed != BODY
            assert receiver.unprotect(HEAD, sealed, TRAILER, token) == BODY


def test_what_is_preferred_by_both_takes_one_round_less(acceptor: SecurityContext) -> None:
    initiator = NegotiationInitiator([(NTLM, mechanism())], PRIVACY, 1)
    assert shake_hands(initiator, acceptor) == 4
    assert initiator.complete and acceptor.complete and acceptor.principal == ALICE
    talk(initiator, acceptor)


def test_what_the_server_does_not_have_is_passed_over(acceptor: SecurityContext) -> None:
    initiator = NegotiationInitiator([(BETTER, mechanism()), (NTLM, mechanism())], PRIVACY, 1)
    assert shake_hands(initiator, acceptor) == 6
    assert initiator.complete and acceptor.complete and acceptor.principal == ALICE
    talk(initiator, acceptor)


def test_an_attacker_who_takes_the_better_way_from_the_list_is_found_out(acceptor: SecurityContext) -> None:
    initiator = NegotiationInitiator([(BETTER, mechanism()), (NTLM, mechanism())], PRIVACY, 1)

    def take(place: int, token: bytes) -> bytes:
        return NegTokenInit(list(NTLM)).pack() if place == 0 else token

    with pytest.raises(AuthenticationError, match="MIC"):
        shake_hands(initiator, acceptor, take)
    assert not acceptor.complete


@pytest.mark.parametrize("end", [3, 5], ids=["the client's", "the server's"])
def test_an_attacker_who_takes_a_proof_away_is_found_out(acceptor: SecurityContext, end: int) -> None:
    initiator = NegotiationInitiator([(BETTER, mechanism()), (NTLM, mechanism())], PRIVACY, 1)

    def take(place: int, token: bytes) -> bytes:
        answer = unpack_token(token)
        if place < end - 1 or not answer.mech_list_mic:
            return token
        return NegTokenResp(answer.neg_state, None, answer.response_token).pack()

    try:
        shake_hands(initiator, acceptor, take)
    except AuthenticationError as error:
        assert "prove" in str(error)
    assert not (initiator.complete and acceptor.complete)


def test_a_server_that_says_it_is_done_too_early_is_not_believed(acceptor: SecurityContext) -> None:
    initiator = NegotiationInitiator([(NTLM, mechanism())], PRIVACY, 1)

    def hurry(place: int, token: bytes) -> bytes:
        answer = unpack_token(token)
        if place != 1:
            return token
        return NegTokenResp(NegState.accept_complete, NTLM[0], answer.response_token).pack()

    with pytest.raises(AuthenticationError, match="prove"):
        shake_hands(initiator, acceptor, hurry)


def test_a_bare_token_is_taken_as_what_it_is(acceptor: SecurityContext) -> None:
    initiator = mechanism()
    assert shake_hands(initiator, acceptor) == 3
    assert acceptor.complete and acceptor.principal == ALICE
    talk(initiator, acceptor)


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\x6e\x03abc",
        NegTokenInit([]).pack(),
        NegTokenInit(list(BETTER)).pack(),
        NegTokenInit(["1.2.840.113554.1.2.2"], mech_token=b"ticket").pack(),
        NegTokenInit(list(BETTER) * 40).pack(),
        NegTokenInit(list(NTLM), mech_token=b"NTLMSSP\0").pack(),
        NegTokenResp(NegState.accept_complete).pack(),
    ],
)
def test_a_first_token_that_begins_nothing_is_refused(acceptor: SecurityContext, token: bytes) -> None:
    with pytest.raises(AuthenticationError):
        acceptor.step(token)
    assert not acceptor.complete and acceptor.principal == ""


@pytest.mark.parametrize(
    "answer",
    [
        NegTokenResp(NegState.reject),
        NegTokenResp(NegState.accept_incomplete, "1.2.3.5"),
        NegTokenResp(NegState.accept_incomplete, NTLM[0], mech_list_mic=bytes(16)),
        NegTokenInit(list(NTLM)),
    ],
    ids=["a refusal", "a choice that was not offered", "a proof of nothing", "a negotiation of its own"],
)
def test_an_answer_that_is_none_is_refused(answer: NegTokenInit | NegTokenResp) -> None:
    initiator = NegotiationInitiator([(NTLM, mechanism())], PRIVACY, 1)
    initiator.step(b"")
    with pytest.raises(AuthenticationError):
        initiator.step(answer.pack())
    assert not initiator.complete


def test_a_wrong_password_is_refused(acceptor: SecurityContext) -> None:
    initiator = NegotiationInitiator([(NTLM, mechanism("Secret-2"))], PRIVACY, 1)
    with pytest.raises(AuthenticationError, match="password"):
        shake_hands(initiator, acceptor)
    assert not acceptor.complete
