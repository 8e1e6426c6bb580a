"""The link to the coordinator of transactions (AMQP 1.0, part 4.2): messages on it declare and discharge."""

import asyncio
from typing import Final

from proton import Delivery, Receiver

from qmnode.amqp.codec import CodecError
from qmnode.amqp.conditions import DECODE, RefusedError
from qmnode.amqp.incoming import Body
from qmnode.amqp.links import Host, refuse, reject
from qmnode.amqp.sections import parse
from qmnode.amqp.transactions import DECLARED, Declare, read_request

_CREDIT: Final = 100
_LONGEST: Final = 4096
"""Bytes of a request."""


class CoordinatorLink:
    """Requests from a program to the coordinator. When it ends, the transactions that it declared are rolled back."""

    def __init__(self, host: Host, link: Receiver, number: int) -> None:
        self.number = number
        self._host = host
        self._link = link
        self._body = Body(host, link, _LONGEST)
        self._declared: dict[bytes, asyncio.TimerHandle] = {}
        self._closed = False
        link.flow(_CREDIT)

    def flow(self) -> None:
        """Nothing waits for it."""

    def delivery(self, delivery: Delivery) -> None:
        """A request has come."""
        if self._closed or not delivery.readable:
            return
        try:
            data = self._body.read(delivery)
        except RefusedError as error:
            refuse(self._link, error)
            return
        if data is not None:
            self._host.spawn(self._answer(delivery, data))

    def pass_ended(self) -> None:
        """Give back the credit that was used."""
        if not self._closed and self._link.credit < _CREDIT // 2:
            self._link.flow(_CREDIT - self._link.credit)

    async def close(self) -> None:
        """The link has ended."""
        self._closed = True
        self._body.drop()
        for identifier, timer in self._declared.items():
            timer.cancel()
            await self._host.transactions.abort(identifier)

    async def _answer(self, delivery: Delivery, data: bytes) -> None:
        try:
            declared = await self._do(data)
        except CodecError as error:
            refused = RefusedError(DECODE, str(error))
        except RefusedError as error:
            refused = error
        else:
            if self._closed or self._host.closed:
                return
            if declared is None:
                delivery.update(Delivery.ACCEPTED)
            else:
                delivery.local.data = [declared]
                delivery.update(DECLARED)
            delivery.settle()
            return
        if not self._closed and not self._host.closed:
            reject(delivery, refused)
            delivery.settle()

    async def _do(self, data: bytes) -> bytes | None:
        """The number of a transaction that has begun; None when one has ended."""
        request = read_request(parse(data))
        transactions = self._host.transactions
        if isinstance(request, Declare):
            identifier = transactions.declare()
            limit = self._host.settings.transaction_timeout
            self._declared[identifier] = self._host.later(limit, lambda: self._expire(identifier))
            return identifier
        if (timer := self._declared.pop(request.identifier, None)) is not None:
            timer.cancel()
        await asyncio.shield(transactions.discharge(request))
        return None

    def _expire(self, identifier: bytes) -> None:
        if self._declared.pop(identifier, None) is not None:
            self._host.spawn(self._host.transactions.abort(identifier))
