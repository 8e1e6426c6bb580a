"""Formats of message bodies and headers: what .NET programs write, read and written in Python.

One module a format. A decoder reads bytes of strangers, so each works within a budget (:mod:`qmnode.bodies.limits`),
and none instantiates a type, loads a schema, resolves an entity, opens a file or a connection.
:mod:`qmnode.bodies.choice` picks the format of a message.
"""
