"""Formats of message bodies and headers that .NET programs use, read and written in Python.

There is one module per format. A decoder reads untrusted bytes, so each works within a budget
(:mod:`qmnode.bodies.limits`), and none instantiates a type, loads a schema, resolves an entity, or opens a file or a
connection. :mod:`qmnode.bodies.choice` selects the format of a message.
"""
