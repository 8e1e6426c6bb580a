"""Moving the bytes of the binary protocol: TCP sessions, UDP pings, timers (MS-MQQB 2.1, 3.1.5.2, 3.1.7.3).

Nothing here knows what a message means: a :class:`~qmnode.transport.connection.Connection` feeds a session of
:mod:`qmnode.protocol` and hands its commands to whoever opened it.
"""
