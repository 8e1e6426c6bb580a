"""The one accountant of a node: the shares of own, declared and unknown parties in each bounded resource.

Nothing here does input or output or reads a clock. To bound a resource:

1. Declare it as a row of :mod:`qmnode.shares.resources`: what one unit is, which setting gives the total, the part that
   strangers cannot take, the part of one party, what makes room, and the answer to the refused.
2. Open its account with the total in force: ``account = context.shares.open(RESOURCE, total)``. Opening it again, after
   a change of settings, changes its limits.
3. Find the party that pays (:mod:`qmnode.shares.parties`): ``OWN`` for local applications and administrators,
   ``declared(name)`` for a peer that has proven who it is, ``stranger(address)`` for everybody else.
4. ``account.take(party, amount)`` returns whether it may, and charges it; ``account.give_back(party, amount)`` when the
   unit is free again. ``account.room(party)`` is the amount that it may take now.

Use over time (messages, connections, processor seconds) is a :class:`~qmnode.shares.rates.Rates` instead: charge what
something cost, and do not read from the payer for the seconds that it returns.

Status, metrics and the table in ``docs/reference/shares.md`` come from the rows and the open accounts.
"""
