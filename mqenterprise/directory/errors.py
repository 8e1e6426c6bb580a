"""Errors of directory servers, each with its DirectoryOperationResult (MS-MQDSSM 2.2.6)."""

from typing import Final

from qmnode.directory.port import DirectoryOperationError, DirectoryOperationResult

INSTEAD: Final = (
    "'mqenterprise document FILE MACHINE' prints what each machine has, the playbook rollout.yml brings it there, and "
    "plan, drift and apply with --nodes FILE ask the nodes"
)
"""The advice for enterprises without a directory."""


class DirectoryError(DirectoryOperationError):
    """An operation that the directory refused, with the server's reason in the sentence."""

    RESULT = DirectoryOperationResult.GENERIC_ERROR

    def __init__(self, sentence: str) -> None:
        super().__init__(self.RESULT, sentence)


class DirectoryUnavailable(DirectoryError):
    """No server answered in time, or the connection broke before anything was written."""

    RESULT = DirectoryOperationResult.DIRECTORY_NOT_CONNECTED


class CertificateRefused(DirectoryUnavailable):
    """The server's certificate is not one that we trust, or not for the name that we asked for."""


class BindRefused(DirectoryUnavailable):
    """The server answered and did not accept who we say we are."""


class WrongPassword(BindRefused):
    """The server does not know the account, or the password is wrong; it does not say which."""


class OutcomeUnknown(DirectoryUnavailable):
    """The connection broke after a write was sent, and reading back could not settle whether it took effect."""


class ObjectNotFound(DirectoryError):
    """There is no such object."""

    RESULT = DirectoryOperationResult.OBJECT_NOT_FOUND


class ObjectAlreadyExists(DirectoryError):
    """There is an object of that name already."""

    RESULT = DirectoryOperationResult.OBJECT_ALREADY_EXISTS


class AccessRefused(DirectoryError):
    """We are known and may not do this."""

    refused = True


class ConstraintViolated(DirectoryError):
    """A value, a name or a place that the schema does not allow, found by the server or by us before we asked it."""


class ConditionFailed(DirectoryError):
    """A change that was conditional on the present value (compare and set), and the value is another one."""


class HalfWritten(DirectoryError):
    """An entry that lacks what its class cannot be without: someone made half of it."""


class SchemaMissing(DirectoryError):
    """The server does not know the classes of Message Queuing."""
