"""Files for the system that runs a node, as package data (``importlib.resources.files("qmnode.systemd")``): the systemd
unit ``qmnode.service``, and ``qmnode.ocf``, the resource agent for Pacemaker.
"""
