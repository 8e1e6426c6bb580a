"""Remote read, on :mod:`qmnode.dcerpc`: RemoteRead (MS-MQRR), qm2qm (MS-MQQP), and of qmcomm (MS-MQMP) the calls that
open a queue.

* ``remoteread``, ``qm2qm``, ``qmcomm``, ``queue_format``, ``transfer_buffer``: the interfaces, declared;
* :mod:`~qmnode.remote_read.message_packet`: the packet that RemoteRead transfers, and its sections;
* :mod:`~qmnode.remote_read.opened`, :mod:`~qmnode.remote_read.opening`, :mod:`~qmnode.remote_read.reads`,
  :mod:`~qmnode.remote_read.remoteread_server`, :mod:`~qmnode.remote_read.qm2qm_server`,
  :mod:`~qmnode.remote_read.qmcomm_server`: the server's methods and the state that they share;
* :mod:`~qmnode.remote_read.identities`: the tokens of remote callers for the access check;
* :mod:`~qmnode.remote_read.server`: the whole server side on its port;
* :mod:`~qmnode.remote_read.remoteread_session`, :mod:`~qmnode.remote_read.qm2qm_session`,
  :mod:`~qmnode.remote_read.remote_node`, :mod:`~qmnode.remote_read.remote_queue`,
  :mod:`~qmnode.remote_read.remote_reader`: the client, which reads queues of other queue managers.
"""
