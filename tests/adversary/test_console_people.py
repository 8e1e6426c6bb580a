"""Consoles, providers and people that claim to be others: what nodes and the console believe of them."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import KeySet, OKPKey, RSAKey

from mqenterprise.console.people import OpenIdProvider, OpenIdSettings, Signer, load_sign_in
from mqenterprise.operations.errors import OperationsError
from qmnode.console.app import Console
from qmnode.console.port import DeniedError, Person, UnavailableError, Ways
from qmnode.console.sign_in import ATTEMPTS
from qmnode.management.tokens import LONGEST, Consoles, Role
from qmnode.settings.node import ConfigurationError
from tests.adversary.attacks import Area, attack
from tests.adversary.played_console import TOKEN, URL, Played, PlayedNode, browser, document, honest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEY = OKPKey.generate_key("Ed25519")
OTHER = OKPKey.generate_key("Ed25519")
NOW = 1_800_000_000
CLAIMS: dict[str, Any] = {
    "iss": "console", "aud": "qmnode:alpha", "sub": "alice", "groups": ["ops"], "iat": NOW, "exp": NOW + 300,
}  # fmt: skip


def signed(claims: dict[str, Any], key: Any = KEY, algorithm: str = "Ed25519") -> str:
    return jwt.encode({"alg": algorithm}, claims, key, algorithms=[algorithm])


def unpadded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


SYMMETRIC = unpadded(b'{"alg":"HS256","kid":"one"}')


def with_a_public_key_as_secret(key: Any, claims: dict[str, Any]) -> str:
    """A token whose HMAC has the public key as its secret, which everybody knows."""
    content = f"{SYMMETRIC}.{unpadded(json.dumps(claims).encode())}"
    return f"{content}.{unpadded(hmac.digest(key.as_pem(private=False), content.encode(), 'sha256'))}"


UNSIGNED = unpadded(b'{"alg":"none"}')


def write_consoles(folder: Path, *entries: dict[str, Any], mode: int = 0o644) -> Path:
    path = folder / "consoles.yaml"
    path.write_text(json.dumps(list(entries)))
    path.chmod(mode)
    return path


def believed(key: OKPKey = KEY, **changes: Any) -> dict[str, Any]:
    public = key.as_pem(private=False).decode()
    return {"name": "console", "public_key": public, "roles": {"Ops": "operate", "all": "read"}} | changes


@pytest.fixture
def node(tmp_path: Path) -> Consoles:
    """What the node ALPHA believes."""
    return Consoles(write_consoles(tmp_path, believed()), "ALPHA", lambda: NOW + 10)


@attack(
    Area.CONSOLE,
    can="forge an assertion, by which a console proves to a node who is signed in",
    promised="the node accepts only assertions that the console's own key has signed, with its algorithm",
)
def test_forged_assertions_prove_nobody(node: Consoles) -> None:
    honest = signed(CLAIMS)
    caller = node.caller(honest)
    assert caller is not None
    assert (caller.name, caller.role) == ("console:alice", Role.OPERATE)
    head, claims, signature = honest.split(".")
    own_key = unpadded(json.dumps({"alg": "Ed25519", "jwk": OTHER.as_dict(private=False)}).encode())
    administrator = unpadded(json.dumps(CLAIMS | {"sub": "root", "groups": ["ops", "admins"]}).encode())
    for forged in (
        signed(CLAIMS, OTHER),
        f"{UNSIGNED}.{claims}.",
        f"{UNSIGNED}.{claims}.{signature}",
        f"{head}.{administrator}.{signature}",
        f"{own_key}.{claims}.{signed(CLAIMS, OTHER).split('.')[2]}",
        with_a_public_key_as_secret(KEY, CLAIMS),
        f"{head}.{claims}.{'A' * 86}",
        f"{honest}.",
        f" {honest}",
        f"{head}..{signature}",
        "." * 90,
        "A" * 20_000,
    ):
        assert node.caller(forged) is None, forged


@attack(
    Area.CONSOLE,
    can="as a node, use an assertion from the console at another node",
    promised="an assertion is valid for one node",
)
def test_an_assertion_for_one_node_is_worth_nothing_at_another(node: Consoles) -> None:
    for audience in (
        "qmnode:beta",
        "qmnode:alph",
        "alpha",
        "",
        None,
        ["qmnode:alpha"],
        ["qmnode:alpha", "qmnode:beta"],
    ):
        assert node.caller(signed(CLAIMS | {"aud": audience})) is None, audience


@attack(
    Area.CONSOLE,
    can="use an old assertion again, or one that never expires",
    promised="an assertion is valid for a few minutes",
)
def test_old_and_endless_assertions_are_refused(node: Consoles) -> None:
    for times in (
        {"iat": NOW - 400, "exp": NOW - 100},
        {"iat": NOW + 400, "exp": NOW + 500},
        {"exp": NOW + LONGEST + 1},
        {"exp": NOW * 2},
        {"exp": NOW - 1},
        {"iat": None},
        {"iat": True, "exp": 300},
        {"exp": float(NOW + 100)},
        {"iat": str(NOW)},
    ):
        assert node.caller(signed(CLAIMS | times)) is None, times


@attack(
    Area.CONSOLE,
    can="claim a role in an assertion, or groups in a wrong form",
    promised="only the node itself gives roles to groups; it ignores everything else in an assertion",
)
def test_a_role_is_never_claimed_in_an_assertion(node: Consoles) -> None:
    claimed = {"role": "administer", "roles": ["administer"], "groups": ["all"], "scope": "administer"}
    caller = node.caller(signed(CLAIMS | claimed))
    assert caller is not None
    assert caller.role is Role.READ
    for groups in ([], "ops", {"ops": 1}, [["ops"]], [7], ["ops"] * 2000, None, ["administer"], ["ops "], ["o*"]):
        assert node.caller(signed(CLAIMS | {"groups": groups})) is None, groups


@attack(
    Area.CONSOLE,
    can="sign in to a console with the name of a user of the machine, or of a token",
    promised="the node puts the console's name before the names of its people",
)
def test_people_of_a_console_are_never_taken_for_others(node: Consoles) -> None:
    for name in ("uid:0", "alice", "root", "console:bob"):
        caller = node.caller(signed(CLAIMS | {"sub": name}))
        assert caller is not None
        assert (caller.name, caller.user, caller.principal) == (f"console:{name}", None, None)
    for name in ("", "a\nb", "x" * 300, 7, None, "a\x00", "\u202egnp"):
        assert node.caller(signed(CLAIMS | {"sub": name})) is None, name


@attack(
    Area.CONSOLE,
    can="hold the key of one console, and sign an assertion in the name of another console",
    promised="a key is valid for its own console only",
)
def test_a_console_speaks_for_itself(tmp_path: Path) -> None:
    path = write_consoles(tmp_path, believed(), believed(OTHER, name="kiosk", roles={"ops": "read"}))
    node = Consoles(path, "ALPHA", lambda: NOW)
    assert node.caller(signed(CLAIMS, OTHER)) is None
    caller = node.caller(signed(CLAIMS | {"iss": "kiosk"}, OTHER))
    assert caller is not None
    assert (caller.name, caller.role) == ("kiosk:alice", Role.READ)
    assert node.caller(signed(CLAIMS | {"iss": "kiosk"})) is None


@attack(
    Area.CONSOLE,
    can="write to the file in which a node lists its consoles",
    promised="the node refuses the file if others may write to it",
)
def test_a_file_of_consoles_that_others_write_is_refused(tmp_path: Path) -> None:
    for mode in (0o666, 0o664, 0o646):
        with pytest.raises(ConfigurationError, match="may write it"):
            Consoles(write_consoles(tmp_path, believed(), mode=mode), "ALPHA")
    for wrong in (
        {"public_key": KEY.as_pem(private=True).decode()},
        {"public_key": RSAKey.generate_key(2048).as_pem(private=False).decode()},
        {"public_key": "x"},
        {"roles": {}},
        {"roles": {"ops": "root"}},
        {"name": "a:b"},
    ):
        with pytest.raises(ConfigurationError):
            Consoles(write_consoles(tmp_path, believed(**wrong)), "ALPHA")


@attack(
    Area.CONSOLE,
    can="read the console's private key from a file that others may read",
    promised="the console refuses to use such a file",
)
def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "console.key"
    key.write_bytes(KEY.as_pem(private=True))
    key.chmod(0o640)
    with pytest.raises(OperationsError, match="others may read"):
        Signer("console", key)
    key.chmod(0o600)
    token = Signer("console", key).credential(theirs("alice"))
    assert token("ALPHA") == token("ALPHA") != token("BETA")
    node = Consoles(write_consoles(tmp_path, believed()), "ALPHA", time.time)
    caller = node.caller(token("ALPHA"))
    assert caller is not None
    assert caller.role is Role.OPERATE
    assert node.caller(token("BETA")) is None
    file = tmp_path / "sign-in.yaml"
    for issuer in ("http://provider.test", "https://provider.test/?x=1", "file:///x"):
        openid = {"issuer": issuer, "client_id": "c", "url": URL}
        file.write_text(json.dumps({"signing_key": "console.key", "openid": openid}))
        with pytest.raises(OperationsError, match="https"):
            load_sign_in(file)


def theirs(name: str) -> Person:
    """A person of the group ``ops``, for good."""

    async def again() -> Person:
        return person

    person = Person(name, ("ops",), again)
    return person


# A provider that lies

ISSUER = "https://provider.test"
PROVIDER_KEY = RSAKey.generate_key(2048, parameters={"kid": "one"})


class LyingProvider:
    """A provider that says what its author wants."""

    def __init__(self, **changes: Any) -> None:
        self.key: Any = PROVIDER_KEY
        self.algorithm = "RS256"
        self.claims: dict[str, Any] = {}
        self.configuration: dict[str, Any] = {}
        self.user: dict[str, Any] = {"sub": "alice", "groups": ["ops"]}
        self.token: str | None = None
        vars(self).update(changes)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        match request.url.path:
            case "/.well-known/openid-configuration":
                own = {
                    "issuer": ISSUER, "jwks_uri": f"{ISSUER}/jwks", "token_endpoint": f"{ISSUER}/token",
                    "authorization_endpoint": f"{ISSUER}/auth", "userinfo_endpoint": f"{ISSUER}/me",
                }  # fmt: skip
                return httpx.Response(200, json=own | self.configuration)
            case "/jwks":
                return httpx.Response(200, json=KeySet([PROVIDER_KEY]).as_dict(private=False))
            case "/me":
                return httpx.Response(200, json=self.user)
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": "console", "sub": "alice", "iat": now, "exp": now + 60, "nonce": "n"}
        given = {name: value for name, value in (claims | self.claims).items() if value is not None}
        header = {"alg": self.algorithm, "kid": "one"}
        token = self.token or jwt.encode(header, given, self.key, algorithms=[self.algorithm])
        return httpx.Response(200, json={"id_token": token, "access_token": "a", "token_type": "Bearer"})


def provider_of(answers: Callable[[httpx.Request], httpx.Response]) -> OpenIdProvider:
    """The console's side, with a provider of the test at the other end."""
    made = OpenIdProvider(OpenIdSettings(issuer=ISSUER, client_id="console", url=URL))
    made._client = httpx.AsyncClient(transport=httpx.MockTransport(answers))
    return made


@attack(
    Area.CONSOLE,
    can="forge the ID token of an OpenID Connect provider, or use that of another client",
    promised="the console signs nobody in",
)
@pytest.mark.parametrize(
    "lie",
    [
        {"key": RSAKey.generate_key(2048, parameters={"kid": "one"})},
        {"token": f"{UNSIGNED}.{unpadded(json.dumps({'iss': ISSUER, 'sub': 'a'}).encode())}."},
        {
            "token": with_a_public_key_as_secret(
                PROVIDER_KEY, {"iss": ISSUER, "aud": "console", "sub": "a", "nonce": "n"}
            )
        },
        {"claims": {"iss": "https://evil.test"}},
        {"claims": {"aud": "another"}},
        {"claims": {"aud": ["console", "another"], "azp": "another"}},
        {"claims": {"exp": 1}},
        {"claims": {"exp": None}},
        {"claims": {"iat": NOW * 2}},
        {"claims": {"nonce": "of another question"}},
        {"claims": {"nonce": None}},
        {"claims": {"sub": ""}},
        {"claims": {"sub": None}},
        {"user": {"sub": "bob", "groups": ["ops"]}},
        {"token": "x"},
    ],
    ids=range(15),
)
async def test_a_forged_identity_proves_nobody(lie: dict[str, Any]) -> None:
    honest_one = provider_of(LyingProvider())
    assert await honest_one.identify("code", "n", "v") == theirs("alice")
    liar = provider_of(LyingProvider(**lie))
    with pytest.raises(DeniedError):
        await liar.identify("code", "n", "v")


@attack(
    Area.CONSOLE,
    can="take the place of the provider, and send browsers to another address",
    promised="the provider has to show its configured name and use https; otherwise the console sends no browser "
    "anywhere",
)
async def test_a_provider_of_another_name_leads_nobody_away() -> None:
    for configuration in (
        {"issuer": "https://evil.test"},
        {"authorization_endpoint": "http://evil.test/auth"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": None},
        {"jwks_uri": "http://evil.test/jwks"},
    ):
        with pytest.raises(UnavailableError):
            await provider_of(LyingProvider(configuration=configuration)).address("s", "n", "v")


@attack(
    Area.CONSOLE,
    can="make a victim's browser finish a sign-in that the attacker began",
    promised="only the browser that began a sign-in can finish it",
)
async def test_nobody_is_signed_in_as_another_by_a_link() -> None:
    node = PlayedNode(lambda path: document({"name": "x", "role": "read"}) if path == "/v1/caller" else honest(path))
    provider = provider_of(LyingProvider())
    ways = Ways(lambda _: lambda _: "the-token", provider=provider)
    served = Console(Played({"ALPHA": node}), ["console.test"], ways=ways)
    async with browser(served) as attacker, browser(served) as victim:
        began = await attacker.get("/api/oidc/start")
        state = httpx.URL(began.headers["location"]).params["state"]
        for cookie in ({}, {"Cookie": "console-oidc=forged"}):
            answer = await victim.get("/api/oidc/callback", params={"code": "c", "state": state}, headers=cookie)
            assert "sign_in_error" in answer.headers["location"]
            assert "__Host-console=" not in str(answer.headers.get_list("set-cookie"))
        assert (await victim.get("/api/session")).json()["signed_in"] is False


@attack(
    Area.CONSOLE,
    can="put an address or a script into the link by which a browser returns from the provider",
    promised="the browser returns to the console's own page",
)
async def test_the_way_back_leads_to_the_console_only() -> None:
    served = Console(
        Played({"ALPHA": PlayedNode()}),
        ["console.test"],
        ways=Ways(lambda _: lambda _: "x", provider=provider_of(LyingProvider())),
    )
    async with browser(served) as client:
        for query in (
            "next=https://evil.test",
            "error=<script>&state=",
            "redirect_uri=//evil.test",
            "url=%0d%0aSet-Cookie:x",
        ):
            answer = await client.get(f"/api/oidc/callback?{query}")
            assert answer.headers["location"].startswith("/#/?sign_in_error=")
            assert "evil" not in answer.headers["location"]
        for headers in (
            {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
            {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
        ):
            for path in ("/", "/api/oidc/callback"):
                assert (await client.get(path, headers=headers)).status_code == 403
        follow = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        assert (await client.get("/", headers=follow)).status_code == 200, "a link in a letter opens the page"
        assert (await client.get("/api/overview", headers=follow)).status_code == 403


@attack(
    Area.CONSOLE,
    can="try many passwords from many addresses",
    promised="after ten wrong passwords within a minute for one name, the console accepts no more for this name",
)
async def test_passwords_are_not_guessed() -> None:
    class Directory:
        asked = 0

        async def identify(self, name: str, password: str) -> Person | None:
            self.asked += 1
            return None

    directory = Directory()
    served = Console(
        Played({"ALPHA": PlayedNode()}), ["console.test"], ways=Ways(lambda _: lambda _: "x", passwords=directory)
    )
    for number in range(ATTEMPTS + 5):
        transport = httpx.ASGITransport(served, client=(f"192.0.2.{number}", 1))
        async with httpx.AsyncClient(transport=transport, base_url=URL, headers={"Origin": URL}) as client:
            wanted = {"method": "ldap", "user": "Alice" if number % 2 else "alice", "password": "guess"}
            answer = await client.post("/api/session", json=wanted)
            assert answer.status_code == (401 if number < ATTEMPTS else 429)
    assert directory.asked == ATTEMPTS
    async with browser(served) as client:
        wanted = {"method": "ldap", "user": "carol", "password": "guess"}
        assert (await client.post("/api/session", json=wanted)).status_code == 401
        assert directory.asked == ATTEMPTS + 1
        for wrong in (
            {"method": "ldap", "user": "bob"},
            {"method": "ldap", "user": ["bob"], "password": "x"},
            {"method": "ldap", "user": "bob", "password": {"$ne": ""}},
        ):
            assert (await client.post("/api/session", json=wrong)).status_code == 422
        for user, password in (("bob", ""), ("b\x00b", "x"), ("b" * 300, "x"), ("", "x")):
            wanted = {"method": "ldap", "user": user, "password": password}
            assert (await client.post("/api/session", json=wanted)).status_code == 401
    assert directory.asked == ATTEMPTS + 1


@attack(
    Area.CONSOLE,
    can="try hundreds of passwords at once, before the directory has refused the first",
    promised="attempts under way count like failed ones: the directory sees ten of them, and others sign in meanwhile",
)
async def test_passwords_are_not_guessed_all_at_once() -> None:
    refuses = asyncio.Event()
    asked: list[str] = []

    class Directory:
        async def identify(self, name: str, password: str) -> Person | None:
            if password == "right":
                return theirs(name)
            asked.append(name)
            await refuses.wait()
            return None

    ways = Ways(lambda _: lambda _: "the-token", passwords=Directory())
    served = Console(Played({"ALPHA": PlayedNode()}), ["console.test"], ways=ways)

    async def tries(address: str, user: str, password: str = "guess") -> int:
        transport = httpx.ASGITransport(served, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url=URL, headers={"Origin": URL}) as client:
            wanted = {"method": "ldap", "user": user, "password": password}
            return (await client.post("/api/session", json=wanted)).status_code

    guesses = [tries(f"2001:db8::{number:x}", f"user{number}") for number in range(150)]  # one /64
    guesses += [tries(f"192.0.2.{number}", "alice") for number in range(150)]  # one name
    running = asyncio.gather(*guesses)
    while len(asked) < 2 * ATTEMPTS:
        await asyncio.sleep(0)
    assert await tries("198.51.100.1", "carol", "right") == 200
    refuses.set()
    answers = await running
    assert (answers.count(401), answers.count(429)) == (2 * ATTEMPTS, 300 - 2 * ATTEMPTS)
    assert len(asked) == 2 * ATTEMPTS


@attack(
    Area.CONSOLE,
    can="begin sign-ins at the OpenID Connect provider by the thousand, and finish none",
    promised="the console keeps nothing of them: whoever has begun to sign in can finish",
)
async def test_sign_ins_that_nobody_finishes_displace_none() -> None:
    provider = LyingProvider()
    ways = Ways(lambda _: lambda _: "the-token", provider=provider_of(provider))
    served = Console(Played({"ALPHA": PlayedNode()}), ["console.test"], ways=ways)
    async with browser(served) as honest_one, browser(served) as attacker:
        began = await honest_one.get("/api/oidc/start")
        asked = httpx.URL(began.headers["location"]).params
        provider.claims = {"nonce": asked["nonce"]}
        for _ in range(1_100):
            attacker.cookies.clear()
            assert (await attacker.get("/api/oidc/start")).status_code == 302
        answer = await honest_one.get("/api/oidc/callback", params={"code": "c", "state": asked["state"]})
        assert answer.headers["location"] == "/#/"
        assert (await honest_one.get("/api/session")).json()["signed_in"] is True


@attack(
    Area.CONSOLE,
    can="alter the cookie of a sign-in under way, or finish one with the cookie of another or of an earlier console",
    promised="the console takes only the sign-in that it began with this browser, for ten minutes",
)
async def test_a_sign_in_under_way_is_not_forged(monkeypatch: pytest.MonkeyPatch) -> None:
    def served() -> Console:
        ways = Ways(lambda _: lambda _: "the-token", provider=provider_of(LyingProvider()))
        return Console(Played({"ALPHA": PlayedNode()}), ["console.test"], ways=ways)

    async def finished(console: Console, cookie: str, state: str) -> str:
        async with browser(console, Cookie=f"console-oidc={cookie}") as client:
            answer = await client.get("/api/oidc/callback", params={"code": "c", "state": state, "error": "denied"})
            return answer.headers["location"]

    one = served()
    async with browser(one) as client, browser(one) as other:
        began = await client.get("/api/oidc/start")
        state, cookie = httpx.URL(began.headers["location"]).params["state"], client.cookies["console-oidc"]
        await other.get("/api/oidc/start")
        assert "denied" in await finished(one, cookie, state), "its own, which the provider may refuse"
        assert state not in cookie
        for forged in (cookie[:-6] + "AAAAA=", cookie[1:], "A" * 200, "", other.cookies["console-oidc"]):
            assert "begin+again" in await finished(one, forged, state), forged
        assert "begin+again" in await finished(served(), cookie, state)
        later = time.time() + 601
        monkeypatch.setattr(time, "time", lambda: later)
        assert "begin+again" in await finished(one, cookie, state)


@attack(
    Area.CONSOLE,
    can="keep the rights of a group that they have left, by keeping the directory from answering the console",
    promised="the session ends when nobody has said for too long which groups the person is in",
)
async def test_a_session_does_not_outlast_a_directory_that_is_silent() -> None:
    class Directory:
        answers = True

        async def identify(self, name: str, password: str) -> Person | None:
            return Person(name, ("ops",), self.again)

        async def again(self) -> Person:
            if not self.answers:
                raise UnavailableError("it does not answer")
            return Person("alice", ("ops",), self.again)

    directory = Directory()
    ways = Ways(lambda _: lambda _: TOKEN, passwords=directory, groups_age=0.2)
    served = Console(Played({"ALPHA": PlayedNode()}), ["console.test"], ways=ways)
    async with browser(served) as client:
        wanted = {"method": "ldap", "user": "alice", "password": "right"}
        assert (await client.post("/api/session", json=wanted)).status_code == 200
        directory.answers = False
        assert (await client.get("/api/overview")).status_code == 200, "a short outage ends nothing"
        async with asyncio.timeout(60):
            while (await client.get("/api/overview")).status_code == 200:
                await asyncio.sleep(0)
        assert "which groups you are in" in (await client.get("/api/session")).json()["reason"]
        directory.answers = True
        assert (await client.get("/api/overview")).status_code == 401
