"""The enterprise around the nodes: directory, topology, keys, roll-out, pipeline."""
