"""Remote read, on :mod:`qmnode.dcerpc`: RemoteRead (MS-MQRR), qm2qm (MS-MQQP), and of qmcomm (MS-MQMP) the calls that
open a queue.

* ``remoteread``, ``qm2qm``, ``qmcomm``, ``queue_format``: the interfaces, declared;
* :mod:`~qmnode.remote_read.message_packet`: the packet that RemoteRead transfers, and its sections;
* ``server``, ``server_queues``, ``remoteread_server``, ``qm2qm_server``, ``qmcomm_server``: the server, which answers
  remote readers; the queues and reads that its interfaces share;
* ``client``, ``client_interfaces``, ``client_queue``, ``client_sessions``: the client, which opens queues of other
  queue managers; its choice of an interface, an open queue, and the calls of each interface that read it.
"""
