"""The binary protocol (MS-MQQB section 3) as state machines without I/O.

Bytes, timer expirations and completions go in; bytes, deadlines and commands come out. Nothing here opens a socket,
reads a clock, calls the model or writes to the store. Two kinds of objects:

* one :class:`~qmnode.protocol.session.Session` per transport connection, initiator or acceptor;
* per queue manager, the state that outlives a connection: :class:`~qmnode.protocol.reception.Reception` (decides which
  received messages are accepted, with :class:`~qmnode.protocol.message_id_history.MessageIdHistory` and
  :class:`~qmnode.protocol.incoming_sequences.IncomingSequences`),
  :class:`~qmnode.protocol.outgoing_sequences.OutgoingSequences` (numbers, order acknowledgments and resending of
  transactional messages) and, per outgoing queue,
  :class:`~qmnode.protocol.connection.OutgoingConnection` (next hops, connection history, retry).

The contract with the packages that transport the bytes and store the messages, in the order of a message's life:

1. ``outgoing.assign`` when a transaction commits: the numbers go into the packets, the records into the same batch.
2. ``OutgoingSequence.prepare`` for transactional messages that were first sent here, from the head of the queue
   in its order; then ``session.send_messages`` for at most ``session.room()`` messages, ``outgoing.sent``, and
   ``session.data_to_send`` to the connection.
3. On the other side ``session.receive_data`` and, from ``session.commands()``, one ``MessagesReceived`` per call.
4. ``reception.unresolved`` returns the destinations to look up. ``reception.admit`` returns an admission: the messages
   to store and the answers.
5. One batch with the whole admission. After its sync, *and after the sync of every earlier admission of any session*:
   ``reception.persisted`` and ``session.messages_settled``. Only then do acknowledgments leave. An empty batch waits
   in the same line: a duplicate in it implies that its first copy is safe.
6. ``MessagesAcknowledged`` on the sending side: delete or journal. Order acknowledgments come back through step 4 of
   the sender's own reception and go to ``outgoing.take_order_ack``. On PROGRESS the sequence's record goes into the
   batch that deletes the messages; on FORGED the session closes if its peer is the author.
7. ``Closed`` names the messages to send again: call ``outgoing.disconnected`` and begin at the head of the queue.

Everything that survives a restart is a record (family, key, value) of bytes; see :mod:`qmnode.protocol.commands`.
Times: ``now`` is seconds on a monotonic clock, ``time`` whole seconds since 1970 (UTC).
"""
