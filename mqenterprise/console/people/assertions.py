"""Proves people to nodes: the console signs who they are, for one node and a few minutes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey

from mqenterprise.console.people.settings import secret_of
from mqenterprise.operations.errors import OperationsError
from qmnode.management.tokens import ALGORITHM, audience_of

if TYPE_CHECKING:
    from pathlib import Path

    from qmnode.console.port import Credential, Person

LIFE: Final = 300
"""Seconds that an assertion is good for."""
_MOST_GROUPS: Final = 200


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
                    "groups": list(person.groups[:_MOST_GROUPS]),
                    "iat": now,
                    "exp": now + LIFE,
                }
                assertion = jwt.encode({"alg": ALGORITHM}, claims, self._key, algorithms=[ALGORITHM])
                made[machine] = now, assertion
            return assertion

        return token
