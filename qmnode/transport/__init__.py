"""Transport of the binary protocol: TCP connections, UDP pings, timers (MS-MQQB 2.1, 3.1.5.2, 3.1.7.3).

Nothing here knows what a message means: a :class:`~qmnode.transport.connection.Connection` feeds a session of
:mod:`qmnode.protocol` and hands the session's commands to the handler that it was opened with.
"""
