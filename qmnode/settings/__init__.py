"""Every setting of a node, with its default, unit, range and section.

:mod:`~qmnode.settings.node` reads the whole configuration; each of the other modules holds the settings of one room.
"""
