"""Linux users and their SIDs: from a table in the settings, else from the directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmnode.directory.port import Directory, DirectoryOperationError, DirectoryOperationResult, User, equals
from qmnode.errors import MessageQueuingError
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.errors import PacketError
from qmnode.structures.sid import Sid

if TYPE_CHECKING:
    from qmnode.settings.security import SecuritySettings


async def security_identifier_of(account: str, settings: SecuritySettings, directory: Directory | None) -> Sid:
    """The SID of a Linux user by name.

    Raises :class:`MessageQueuingError` with MQ_ERROR_COULD_NOT_GET_USER_SID when nobody knows it, MQ_ERROR_NO_DS when
    the directory does not answer.
    """
    text = settings.account_security_identifiers.get(account)
    if text is not None:
        try:
            return Sid.from_text(text)
        except ValueError as error:
            raise _unknown(f"security.account_security_identifiers has a wrong entry for {account}: {error}") from None
    if directory is None:
        raise _unknown(f"nobody knows a SID of {account}: add an entry in security.account_security_identifiers")
    try:
        user = await directory.read_directory(User, [equals("name", account)], ["security_identifier"])
    except DirectoryOperationError as error:
        if error.result is DirectoryOperationResult.OBJECT_NOT_FOUND:
            raise _unknown(
                f"the directory has no user {account}: add one, or an entry in security.account_security_identifiers"
            ) from None
        raise MessageQueuingError(ErrorCode.MQ_ERROR_NO_DS, f"the SID of {account}: {error.sentence}") from None
    try:
        return Sid.parse(user.security_identifier or b"")
    except PacketError:
        raise _unknown(f"the directory holds no SID that can be read for {account}") from None


def _unknown(sentence: str) -> MessageQueuingError:
    return MessageQueuingError(ErrorCode.MQ_ERROR_COULD_NOT_GET_USER_SID, sentence)
