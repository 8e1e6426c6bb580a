"""Remote read: the interfaces qm2qm (MS-MQQP) and, of qmcomm (MS-MQMP), what opens a queue, over DCE/RPC.

From the wire up:

* :mod:`~qmnode.rpc.pdu`, :mod:`~qmnode.rpc.reassembly`: PDUs of connection-oriented RPC, as data, and their fragments;
* :mod:`~qmnode.rpc.acceptor`, :mod:`~qmnode.rpc.initiator`: both sides of a connection, without I/O;
* :mod:`~qmnode.rpc.authentication`, :mod:`~qmnode.rpc.protection`: who calls, and how PDUs are protected;
  ``ntlm``, ``kerberos``, and ``negotiation``, which agrees on one of them;
* :mod:`~qmnode.rpc.interface`, ``ndr``: methods declared once, written and read as NDR and as NDR64;
* :mod:`~qmnode.rpc.server`, :mod:`~qmnode.rpc.client`, :mod:`~qmnode.rpc.contexts`: on asyncio, with handles;
* :mod:`~qmnode.rpc.opened`, :mod:`~qmnode.rpc.qm2qm_server`, :mod:`~qmnode.rpc.qmcomm_server`: the methods;
* :mod:`~qmnode.rpc.remote_node`, :mod:`~qmnode.rpc.remote_queue`, :mod:`~qmnode.rpc.remote_reader`: reading elsewhere;
* :mod:`~qmnode.rpc.remote_read`, :mod:`~qmnode.rpc.endpoint_mapper`: all of the server's side, and where it is found.
"""
