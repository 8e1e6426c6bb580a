"""Messages between the store and the wire: where the protocol, the transport, the model and the store meet.

Outgoing queues become sessions, received packets become messages in queues, and what the protocol's state must remember
goes into the same batch. Decisions are the protocol's and the model's; here is only what joins them:

* :mod:`~qmnode.delivery.state`: the protocol's state beside the sessions, loaded from the store and written to it;
* :mod:`~qmnode.delivery.queue_sender`: one outgoing queue, and what of it is under way;
* :mod:`~qmnode.delivery.unacknowledged`: its transactional messages that wait for their order acknowledgment;
* :mod:`~qmnode.delivery.queue_connection`: its connection to a next hop;
* :mod:`~qmnode.delivery.arrivals`: batches of received messages;
* :mod:`~qmnode.delivery.notices`: messages about messages;
* :mod:`~qmnode.delivery.next_hops`: from a destination's name to addresses;
* :mod:`~qmnode.delivery.network`: all of it.
"""
