"""The systemd unit of a node, as package data: ``importlib.resources.files("qmnode.systemd") / "qmnode.service"``."""
