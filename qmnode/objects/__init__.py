"""Every property of every kind of object, and of a message: one row each.

The model, the directory, declarations, commands and documents take from it what they know of a property.
:mod:`qmnode.objects.rows` defines a row, :mod:`qmnode.objects.table` has the rows.
"""
