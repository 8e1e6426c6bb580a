"""DCE/RPC over TCP, independent of queues.

From the wire up:

* :mod:`~qmnode.dcerpc.pdu`, :mod:`~qmnode.dcerpc.reassembly`: PDUs of RPC as data, and their fragments;
* :mod:`~qmnode.dcerpc.acceptor`, :mod:`~qmnode.dcerpc.initiator`: both sides of a connection, without I/O;
* :mod:`~qmnode.dcerpc.authentication`, :mod:`~qmnode.dcerpc.protection`: authentication of callers, protection of PDUs;
  ``ntlm``, ``kerberos``, and ``negotiation``, which agrees on one of them;
* :mod:`~qmnode.dcerpc.interface`, ``ndr``: methods declared once, written and read as NDR and as NDR64;
* :mod:`~qmnode.dcerpc.server`, :mod:`~qmnode.dcerpc.client`, :mod:`~qmnode.dcerpc.context_handles`: on asyncio, with
  handles;
* :mod:`~qmnode.dcerpc.endpoint_mapper`, :mod:`~qmnode.dcerpc.endpoint_mapper`: the ports of interfaces.
"""
