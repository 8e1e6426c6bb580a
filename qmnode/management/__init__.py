"""The management API: HTTP with JSON for administrators and their tools. Messages of applications take qmnode/local.

``server`` serves ``app`` on a Unix socket and, when configured, on TCP with TLS; ``doorway`` finds out who calls and
what they may do; ``audit`` writes down what they changed; the ``*_routes`` modules are the resources.
"""
