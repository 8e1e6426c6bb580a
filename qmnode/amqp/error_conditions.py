"""Errors as AMQP says them: a condition for programs, a sentence for people.

A message that is rejected has the name of the MQ_ERROR code as its condition. For links and connections AMQP has
conditions of its own, which clients turn into exceptions of their own; the code begins the description there.
"""

from typing import Final

from qmnode.errors import MessageQueuingError
from qmnode.structures.error_codes import ErrorCode

INTERNAL: Final = "amqp:internal-error"
INVALID_FIELD: Final = "amqp:invalid-field"
NOT_ALLOWED: Final = "amqp:not-allowed"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
DECODE: Final = "amqp:decode-error"
PRECONDITION_FAILED: Final = "amqp:precondition-failed"
RESOURCE_LIMIT: Final = "amqp:resource-limit-exceeded"
SIZE: Final = "amqp:link:message-size-exceeded"
TRANSFER_LIMIT: Final = "amqp:link:transfer-limit-exceeded"
FORCED: Final = "amqp:connection:forced"
ROLLBACK: Final = "amqp:transaction:rollback"
UNKNOWN_TRANSACTION: Final = "amqp:transaction:unknown-id"

_ENDPOINTS: Final = {
    ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND: "amqp:not-found",
    ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME: "amqp:not-found",
    ErrorCode.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME: "amqp:not-found",
    ErrorCode.MQ_ERROR_ACCESS_DENIED: "amqp:unauthorized-access",
    ErrorCode.MQ_ERROR_SHARING_VIOLATION: "amqp:resource-locked",
    ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE: "amqp:resource-deleted",
    ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES: RESOURCE_LIMIT,
    ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION: NOT_ALLOWED,
    ErrorCode.MQ_ERROR_UNSUPPORTED_ACCESS_MODE: NOT_ALLOWED,
    ErrorCode.MQ_ERROR_TRANSACTION_USAGE: NOT_ALLOWED,
}


class RefusedError(Exception):
    """A request of a peer that is refused."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description


def of_message(error: MessageQueuingError) -> RefusedError:
    """Why a message is rejected."""
    return RefusedError(error.name, str(error))


def of_endpoint(error: MessageQueuingError) -> RefusedError:
    """Why a link is refused or ended."""
    return RefusedError(_ENDPOINTS.get(error.code, INTERNAL), str(error))
