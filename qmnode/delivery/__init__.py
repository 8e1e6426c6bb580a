"""Delivery joins the protocol, the transport, the model and the store.

Outgoing queues become sessions, received packets become messages in queues, and the protocol's state is written in the
same batch. The protocol and the model decide; this package only connects them:

* :mod:`~qmnode.delivery.queue_sender`: one outgoing queue, and its messages under way;
* :mod:`~qmnode.delivery.acknowledgments`: transactional messages that wait for an acknowledgment, and acknowledgments;
* :mod:`~qmnode.delivery.queue_connection`: its connection to a next hop;
* :mod:`~qmnode.delivery.arrivals`: sessions of peers, batches of received messages, and the protocol's state outside
  the sessions, loaded from the store and written to it;
* :mod:`~qmnode.delivery.notices`: acknowledgments and trace reports about messages;
* :mod:`~qmnode.delivery.topology`: from a destination's name to addresses;
* :mod:`~qmnode.delivery.network`: all of these, started and stopped together.
"""
