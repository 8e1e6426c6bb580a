"""People of an OpenID Connect provider: the code flow with PKCE, and ID tokens whose signature is checked."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

import httpx
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from mqenterprise.console.people.settings import secret_of
from mqenterprise.operations.errors import OperationsError
from qmnode.console.port import DeniedError, Person, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mqenterprise.console.people.settings import OpenIdSettings

_ALGORITHMS: Final = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519"]
"""Of ID tokens. Never ``none``, and none with a shared secret."""
_FRESH: Final = 600.0
"""Seconds for which the provider's configuration and keys are taken for true."""
_UNRENEWED: Final = 3600.0
"""Seconds that a session lasts if the provider gave no refresh token to ask for the groups of now with."""
_CLOCKS: Final = 60
_TOO_MANY: Final = 429
_INTERNAL: Final = 500
_LONGEST_ANSWER: Final = 1 << 20
_MOST_GROUPS: Final = 1000


@dataclass(slots=True)
class _Refresh:
    """The refresh token that a provider gave last: many take each one only once."""

    token: Any


class OpenIdProvider:
    """The provider. Raises :class:`OperationsError` if its files cannot be used."""

    def __init__(self, settings: OpenIdSettings) -> None:
        self._settings = settings
        self._secret = (
            None
            if settings.client_secret_file is None
            else secret_of(settings.client_secret_file, "the client's secret")
        )
        try:
            trust = ssl.create_default_context(cafile=None if settings.authority is None else str(settings.authority))
        except OSError as error:  # ssl.SSLError is one
            raise OperationsError(f"{settings.authority}: no certificates can be read: {error}") from None
        self._client = httpx.AsyncClient(verify=trust, timeout=settings.timeout, trust_env=False)
        self._redirect = f"{settings.url.rstrip('/')}/api/oidc/callback"
        self._configuration: dict[str, Any] = {}
        self._keys = KeySet([])
        self._read = -_FRESH

    async def close(self) -> None:
        """Close the connections to the provider."""
        await self._client.aclose()

    async def address(self, state: str, nonce: str, verifier: str) -> str:
        """Where the browser goes to sign in. Raises :class:`DeniedError` or :class:`UnavailableError`."""
        await self._read_again()
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._redirect,
            "scope": self._settings.scope,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        endpoint = self._endpoint("authorization_endpoint")
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"

    async def identify(self, code: str, nonce: str, verifier: str) -> Person:
        """The person who came back with a code. Raises :class:`DeniedError` or :class:`UnavailableError`."""
        answer = await self._granted(
            grant_type="authorization_code", code=code, redirect_uri=self._redirect, code_verifier=verifier
        )
        claims = await self._claims(answer.get("id_token"))
        if claims.get("nonce") != nonce:
            raise DeniedError("the ID token is the answer to another question")
        return await self._person(claims, answer, nonce, time.monotonic(), _Refresh(answer.get("refresh_token")))

    async def _again(self, before: Person, subject: str, nonce: str, began: float, refresh: _Refresh) -> Person:
        """The person with the groups of now (OpenID Connect Core, 12). Raises as ``identify`` does."""
        if not isinstance(refresh.token, str):
            if time.monotonic() - began > _UNRENEWED:
                raise DeniedError("the provider said an hour ago which groups you are in: sign in again")
            return before
        answer = await self._granted(grant_type="refresh_token", refresh_token=refresh.token)
        # Kept at once: whatever fails from here on, the token before may be used up.
        refresh.token = answer.get("refresh_token", refresh.token)
        claims: Mapping[str, Any] = {"sub": subject}
        if answer.get("id_token") is not None:
            claims = await self._claims(answer["id_token"])
            if claims["sub"] != subject or claims.get("nonce", nonce) != nonce:
                raise DeniedError("the provider says who another person is")
        return await self._person(claims, answer, nonce, began, refresh)

    async def _granted(self, **asked: str) -> dict[str, Any]:
        """The answer of the token endpoint to this grant."""
        await self._read_again()
        own = None
        if self._secret is None:
            asked["client_id"] = self._settings.client_id
        else:  # each is encoded as in a form before (RFC 6749, 2.3.1)
            own = httpx.BasicAuth(quote(self._settings.client_id, safe=""), quote(self._secret, safe=""))
        return await self._ask("POST", self._endpoint("token_endpoint"), data=asked, auth=own)

    async def _person(
        self, claims: Mapping[str, Any], answer: dict[str, Any], nonce: str, began: float, refresh: _Refresh
    ) -> Person:
        """The person of these claims, and of those to which the access token of an answer leads."""
        if self._settings.groups not in claims and isinstance(answer.get("access_token"), str):
            bearer = {"Authorization": f"Bearer {answer['access_token']}"}
            more = await self._ask("GET", self._endpoint("userinfo_endpoint"), headers=bearer)
            if more.get("sub") != claims["sub"]:  # OpenID Connect Core, 5.3.2
                raise DeniedError("the provider says who another person is")
            claims = {**more, **claims}
        name = claims.get(self._settings.name)
        groups = claims.get(self._settings.groups)
        subject = str(claims["sub"])
        person = Person(
            name if isinstance(name, str) and name else subject,
            tuple(one for one in groups[:_MOST_GROUPS] if isinstance(one, str)) if isinstance(groups, list) else (),
            lambda: self._again(person, subject, nonce, began, refresh),
        )
        return person

    async def _claims(self, token: Any) -> Mapping[str, Any]:
        """The claims of an ID token that is for this console (Core, 3.1.3.7)."""
        if not isinstance(token, str):
            raise DeniedError("the provider gave no ID token: is openid in the scope?")
        try:
            claims = jwt.decode(token, self._keys, algorithms=_ALGORITHMS).claims
        except (JoseError, ValueError, TypeError):
            await self._read_again(at_once=True)  # it may have a new key
            try:
                claims = jwt.decode(token, self._keys, algorithms=_ALGORITHMS).claims
            except (JoseError, ValueError, TypeError) as error:
                raise DeniedError(f"the provider's ID token is not signed by a key of it ({error})") from None
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        client, now, ends = self._settings.client_id, time.time(), claims.get("exp")
        began = claims.get("iat")
        if claims.get("iss") != self._settings.issuer:
            raise DeniedError("the ID token is of another provider")
        if client not in audiences or claims.get("azp", client) != client:
            raise DeniedError("the ID token is for another client")
        if not isinstance(ends, int | float) or now > ends + _CLOCKS:
            raise DeniedError("the ID token is over: compare the clocks of the console and the provider")
        if not isinstance(began, int | float) or began > now + _CLOCKS:
            raise DeniedError("the ID token is of the future: compare the clocks of the console and the provider")
        if not isinstance(claims.get("sub"), str) or not claims["sub"]:
            raise DeniedError("the ID token names nobody")
        return claims

    async def _read_again(self, *, at_once: bool = False) -> None:
        if not at_once and time.monotonic() - self._read < _FRESH:
            return
        issuer = self._settings.issuer
        found = await self._ask("GET", f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != issuer:  # Discovery, 4.3
            raise UnavailableError(f"the provider calls itself {found.get('issuer')!r:.200}, and not {issuer!r}")
        self._configuration = found
        keys = await self._ask("GET", self._endpoint("jwks_uri"))
        try:
            self._keys = KeySet.import_key_set(keys)  # type: ignore[arg-type]
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise UnavailableError(f"the provider's keys cannot be read: {error!r:.200}") from None
        self._read = time.monotonic()

    def _endpoint(self, name: str) -> str:
        address = self._configuration.get(name)
        secure = urlsplit(self._settings.issuer).scheme
        if not isinstance(address, str) or urlsplit(address).scheme not in ("https", secure):
            raise UnavailableError(f"the provider has no {name} with https")
        return address

    async def _ask(self, method: str, address: str, **more: Any) -> dict[str, Any]:
        try:
            async with self._client.stream(method, address, **more) as response:
                content = b""
                async for part in response.aiter_bytes():
                    content += part
                    if len(content) > _LONGEST_ANSWER:
                        raise UnavailableError("the provider's answer has no end")
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise UnavailableError(f"the provider does not answer: {error or type(error).__name__}") from None
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise UnavailableError(f"the provider's answer is no document (HTTP status {response.status_code})")
        if response.status_code >= _INTERNAL or response.status_code == _TOO_MANY:
            raise UnavailableError(f"the provider cannot answer now (HTTP status {response.status_code})")
        if document.get("error") == "invalid_client":  # says nothing of the person
            raise UnavailableError("the provider does not know the console: compare its client_id and client secret")
        if response.status_code != 200:
            reason = document.get("error_description") or document.get("error") or response.status_code
            raise DeniedError(f"the provider refused: {str(reason)[:300]}")
        return document
