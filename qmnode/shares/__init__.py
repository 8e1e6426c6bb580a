"""The one accountant of a node: the shares of own, declared and unknown parties in each bounded resource.

Nothing here does input or output, and only the turns read a clock. To bound a resource:

1. Declare it as a row of :mod:`qmnode.shares.resources`: what one unit is, which setting gives the total, the part that
   strangers cannot take, the part of one party, what makes room, and the answer to the refused.
2. Open its account with the total in force: ``account = context.shares.open(RESOURCE, total)``. Opening it again, after
   a change of settings, changes its limits.
3. Find the party that pays (:mod:`qmnode.shares.parties`): ``OWN`` for local applications and administrators,
   ``declared(name)`` for a peer that has proven who it is, ``stranger(address)`` for everybody else.
4. ``account.take(party, amount)`` returns whether it may, and charges it; ``account.give_back(party, amount)`` when the
   unit is free again. ``account.room(party)`` is the amount that it may take now.

The processor is shared in :mod:`qmnode.shares.turns`: each door takes a turn for the input of a connection.

Some limits are no accounts, and count by address block where they are:

- Places for connections (:mod:`qmnode.transport.slots`): what makes room depends on who was heard last, not on the
  order of arrival. The limit of a block is a setting of its own.
- Packets that are not believed (:mod:`qmnode.delivery.distrust`): they hold nothing but a number, for a minute.
- Branches of a sequence (:mod:`qmnode.protocol.branches`): at most sixteen of each position, which has an account.
- Windows of sessions: agreed with each peer. The bytes behind them are held bytes, which have an account.
- The quota: what is stored does not keep its payer over a restart, so strangers share it, without parts for blocks.

Status, metrics and the table in ``docs/reference/shares.md`` come from the rows and the open accounts.
"""
