"""Operations on messages as the faces call them: every argument and every answer is plain, so that it can travel."""

from collections.abc import Mapping, Sequence
from typing import Any

from qmnode.administration.asker import Asker
from qmnode.administration.criteria import Criteria
from qmnode.administration.search import PAGE, search_page
from qmnode.errors import MessageQueuingError
from qmnode.model.packet import whole_value
from qmnode.model.queue_manager import QueueManager
from qmnode.structures.error_codes import ErrorCode


class Operations:
    """The engine over one queue manager."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager

    async def find(
        self, asker: Asker, queues: Sequence[str], criteria: Mapping[str, Any], cursor: str = "", limit: int = PAGE
    ) -> dict[str, Any]:
        """Return a page of found messages: ``found`` has the queue, the lookup identifier and the stored value of each.

        Ask again with ``next`` as cursor, until it is empty.
        """
        wanted = criteria_of(asker, criteria)
        names = checked_names(queues)
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise _bad("limit is a number, at least 1")
        page = await search_page(self._manager, names, wanted, str(cursor), limit, caller=asker.principal)
        return {
            "found": [
                {"queue": one.queue, "lookup": one.message.lookup_identifier, "value": whole_value(one.message)}
                for one in page.found
            ],
            "scanned": page.scanned,
            "total": page.total,
            "next": page.next,
            "refused": list(page.refused),
        }


def criteria_of(asker: Asker, given: object) -> Criteria:
    """Criteria from JSON, if the asker may ask for these. MQ_ERROR_INVALID_PARAMETER, MQ_ERROR_ACCESS_DENIED."""
    if not isinstance(given, Mapping):
        raise _bad("criteria are names with values")
    criteria = Criteria.from_plain(given)
    if criteria.reads_bodies and not asker.reads_bodies:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{asker.name} may not read bodies, and so not search by them"
        )
    return criteria


def checked_names(queues: object) -> list[str]:
    """Names of queues from JSON. MQ_ERROR_INVALID_PARAMETER."""
    if isinstance(queues, str) or not isinstance(queues, Sequence) or not queues or len(queues) > 1000:
        raise _bad("queues is a list of 1 to 1000 names or patterns")
    if not all(isinstance(name, str) and 0 < len(name) <= 512 for name in queues):
        raise _bad("the name of a queue is a text of at most 512 characters")
    return list(queues)


def _bad(sentence: str) -> MessageQueuingError:
    return MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_PARAMETER, sentence)
