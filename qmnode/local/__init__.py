"""How applications reach the node that runs as a service: framed batches on a Unix socket.

``frames`` is the layout of the bytes, ``values`` what travels in the rarer calls, ``server`` the node's side,
``connection`` and ``remote`` the application's: the same interface that an embedded queue manager gives.
"""
