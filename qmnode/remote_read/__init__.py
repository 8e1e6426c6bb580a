"""Remote read: the interface qm2qm (MS-MQQP) and the queue-opening part of qmcomm (MS-MQMP), on :mod:`qmnode.dcerpc`.

* ``qm2qm``, ``qmcomm``, ``queue_format``, ``transfer_buffer``: the interfaces and their structures, declared;
* :mod:`~qmnode.remote_read.opened`, :mod:`~qmnode.remote_read.qm2qm_server`,
  :mod:`~qmnode.remote_read.qmcomm_server`: the server's methods and the state that they share;
* :mod:`~qmnode.remote_read.identities`: the tokens of remote callers for the access check;
* :mod:`~qmnode.remote_read.server`: the whole server side on its port;
* :mod:`~qmnode.remote_read.remote_node`, :mod:`~qmnode.remote_read.remote_queue`,
  :mod:`~qmnode.remote_read.remote_reader`: the client, which reads queues of other queue managers.
"""
