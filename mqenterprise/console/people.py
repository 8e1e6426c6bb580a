"""How the console identifies people: by an LDAP directory or an OpenID Connect provider; and proves them to nodes."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import ssl
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote, urlencode, urlsplit

import httpx
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet, OKPKey
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from mqenterprise.directory.connection import LdapConnection
from mqenterprise.directory.errors import BindRefused, ConstraintViolated, DirectoryError
from mqenterprise.directory.ldap_names import escape_filter
from mqenterprise.directory.settings import BindMethod
from mqenterprise.operations.errors import OperationsError
from mqenterprise.operations.settings import read_settings, secret_of
from qmnode.console.port import GROUPS_AGE, DeniedError, Person, UnavailableError
from qmnode.management.tokens import ALGORITHM, audience_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mqenterprise.directory.entries import Entry
    from mqenterprise.directory.settings import DirectorySettings
    from qmnode.console.port import Credential

_ATTRIBUTE: Final = r"^[A-Za-z][A-Za-z0-9-]{0,60}(:[0-9.]{1,60}:)?$"


class LdapSettings(BaseModel):
    """The directory of people. Its entries are searched as the identity of ``directory``, and bound as the person."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    directory: Path
    """The file of the directory's settings, such as that of ``--directory``."""
    people: str | None = None
    """The distinguished name below which people are; the directory's root when not set."""
    name: str = Field(default="uid", pattern=_ATTRIBUTE)
    """The attribute that holds the name to sign in with; ``sAMAccountName`` on Active Directory."""
    groups: str | None = None
    """The distinguished name below which groups are; the directory's root when not set."""
    member: str = Field(default="member", pattern=_ATTRIBUTE)
    """The attribute of a group with the names of its members. On Active Directory
    ``member:1.2.840.113556.1.4.1941:`` also finds members of groups in groups."""
    group_name: str = Field(default="cn", pattern=_ATTRIBUTE)
    """The attribute with a group's name, as ``management.consoles`` of the nodes has it."""


class OpenIdSettings(BaseModel):
    """The provider, and this console as its client (OpenID Connect Core 1.0, the code flow with PKCE)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    issuer: str
    """The provider's URL; its configuration is read from there (OpenID Connect Discovery 1.0)."""
    client_id: str = Field(min_length=1, max_length=300)
    client_secret_file: Path | None = None
    """The file of the client's secret. A public client has none."""
    url: str
    """The URL of the console as browsers know it; the provider sends them to ``api/oidc/callback`` below it."""
    scope: str = Field(default="openid profile groups", pattern=r"^openid( [!-~]+)*$")
    name: str = "preferred_username"
    """The claim with the person's name. Without it ``sub`` counts."""
    groups: str = "groups"
    """The claim with the names of the person's groups."""
    authority: Path | None = None
    """PEM file of the authority of the provider's certificate; without it those of the system are believed."""
    timeout: float = Field(default=5.0, gt=0, le=60)
    """Seconds for an answer of the provider."""

    @field_validator("issuer", "url")
    @classmethod
    def _is_safe(cls, value: str) -> str:
        parts = urlsplit(value)
        loopback = parts.hostname in ("127.0.0.1", "::1", "localhost")
        if not parts.hostname or parts.query or parts.fragment or (parts.scheme != "https" and not loopback):
            raise ValueError("write a URL with https")
        return value


class SignInSettings(BaseModel):
    """All settings. Relative paths begin at the folder of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(default="console", pattern=r"^[A-Za-z0-9._-]{1,60}$")
    """The console's name in ``management.consoles`` of the nodes."""
    signing_key: Path
    """PEM file of the console's private key (Ed25519); its holder can be everybody to the nodes."""
    ldap: LdapSettings | None = None
    openid: OpenIdSettings | None = None
    groups_age: float = Field(default=GROUPS_AGE, ge=1, le=3600)
    """Seconds after which the directory or the provider is asked again which groups a person is in. A session ends
    when it has not answered for 15 times as long."""

    @model_validator(mode="after")
    def _has_a_way(self) -> Self:
        if self.ldap is None and self.openid is None:
            raise ValueError("name a way to sign in: ldap, openid or both")
        return self


def load_sign_in(file: Path) -> SignInSettings:
    """The settings of a file. Raises :class:`OperationsError`."""
    settings = read_settings(file, SignInSettings)
    folder = file.parent
    changes: dict[str, object] = {"signing_key": folder / settings.signing_key}
    if settings.ldap is not None:
        changes["ldap"] = settings.ldap.model_copy(update={"directory": folder / settings.ldap.directory})
    if (openid := settings.openid) is not None:
        paths = {"client_secret_file": openid.client_secret_file, "authority": openid.authority}
        changes["openid"] = openid.model_copy(
            update={name: folder / path for name, path in paths.items() if path is not None}
        )
    return settings.model_copy(update=changes)


LIFE: Final = 300
"""Seconds that an assertion is good for."""
_MOST_ASSERTED_GROUPS: Final = 200


class Signer:
    """The console's key. Raises :class:`OperationsError` if the file holds none."""

    def __init__(self, name: str, file: Path) -> None:
        self._name = name
        try:
            self._key = OKPKey.import_key(secret_of(file, "the console's key"))
            if self._key.curve_name != "Ed25519" or not self._key.is_private:
                raise ValueError("it is no private key of Ed25519")
        except (ValueError, TypeError, AttributeError, JoseError) as error:
            raise OperationsError(
                f"{file}: no key to sign with ({error}): make one with `openssl genpkey -algorithm ed25519 -out {file}`"
            ) from None

    def credential(self, person: Person) -> Credential:
        """The proof of a person for each node: an assertion that is renewed when half of its life is over."""
        made: dict[str, tuple[int, str]] = {}

        def token(machine: str) -> str:
            now = int(time.time())
            began, assertion = made.get(machine, (0, ""))
            if not began <= now < began + LIFE // 2:
                claims = {
                    "iss": self._name,
                    "aud": audience_of(machine),
                    "sub": person.name,
                    "groups": list(person.groups[:_MOST_ASSERTED_GROUPS]),
                    "iat": now,
                    "exp": now + LIFE,
                }
                assertion = jwt.encode({"alg": ALGORITHM}, claims, self._key, algorithms=[ALGORITHM])
                made[machine] = now, assertion
            return assertion

        return token


_CONTROL: Final = "userAccountControl"
_ACCOUNT_DISABLE: Final = 2
_MOST_GROUPS_OF_DIRECTORY: Final = 1_024
"""Groups that one person may be in: Active Directory itself lets nobody log on who is in more (MS-KILE)."""
_LONGEST_NAME: Final = 300
"""Characters of a name. A node gives no role to a group with a longer one."""


class LdapPeople:
    """The people of a directory."""

    def __init__(self, settings: LdapSettings, directory: DirectorySettings) -> None:
        self._settings = settings
        self._directory = directory

    async def identify(self, name: str, password: str) -> Person | None:
        """The person; None for an unknown name or a wrong password. Raises :class:`UnavailableError`."""
        if not password:  # a bind without one succeeds for nobody (RFC 4513, 5.1.2)
            return None
        return await self._ask(name, lambda connection, dn: self._is_bound(connection, dn, password))

    async def _again(self, name: str, known: str) -> Person:
        """The person with the groups of now. Raises :class:`DeniedError` and :class:`UnavailableError`."""
        person = await self._ask(name, lambda _, dn: dn.casefold() == known.casefold())
        if person is None:
            raise DeniedError(f"the directory has no {name} any more, or has disabled the account")
        return person

    async def _ask(self, name: str, is_theirs: Callable[[LdapConnection, str], bool]) -> Person | None:
        try:
            return await asyncio.to_thread(self._found, name, is_theirs)
        except DirectoryError as error:
            raise UnavailableError(f"the directory cannot say who you are: {error.sentence}") from None

    def _found(self, name: str, is_theirs: Callable[[LdapConnection, str], bool]) -> Person | None:
        wanted = self._settings
        with closing(LdapConnection(self._directory)) as connection:
            found = list(
                connection.search(
                    wanted.people or connection.root,
                    f"({wanted.name}={escape_filter(name.encode())})",
                    (wanted.name, _CONTROL),
                )
            )
            if len(found) != 1 or _is_disabled(found[0]) or not is_theirs(connection, found[0].dn):
                return None
            person = found[0]
            groups = connection.search(
                wanted.groups or connection.root,
                f"({wanted.member}={escape_filter(person.dn.encode())})",
                (wanted.group_name,),
            )
            names: set[str] = set()
            for group in groups:
                names.add((group.first(wanted.group_name) or b"").decode("utf-8", "replace")[: _LONGEST_NAME + 1])
                if len(names) > _MOST_GROUPS_OF_DIRECTORY:
                    raise ConstraintViolated(f"{name} is in more than {_MOST_GROUPS_OF_DIRECTORY:,} groups")
        spelled = (person.first(wanted.name) or name.encode()).decode("utf-8", "replace")
        if len(spelled) > _LONGEST_NAME:
            raise ConstraintViolated(f"{name} has a name of more than {_LONGEST_NAME} characters")
        return Person(
            spelled,
            tuple(sorted(one for one in names if 0 < len(one) <= _LONGEST_NAME)),
            lambda: self._again(spelled, person.dn),
        )

    def _is_bound(self, connection: LdapConnection, dn: str, password: str) -> bool:
        own = {"bind": BindMethod.SIMPLE, "user": dn, "password": SecretStr(password), "password_file": None}
        try:
            for session in connection.pool.unbound(self._directory.model_copy(update=own)):
                session.close()
                return True
        except BindRefused:
            pass
        return False


def _is_disabled(person: Entry) -> bool:
    """Whether Active Directory has disabled the account: its password is not tried again (MS-ADTS 2.2.16)."""
    control = person.first(_CONTROL) or b""
    return control.isdigit() and bool(int(control) & _ACCOUNT_DISABLE)


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
