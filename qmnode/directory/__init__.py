"""The directory as a node sees it.

* :mod:`~qmnode.directory.port`: what a node needs of a directory, as protocols and records;
* :mod:`~qmnode.directory.upkeep`: what a node keeps up to date in its directory;
* :mod:`~qmnode.directory.file`: a directory in one YAML file;
* :mod:`~qmnode.directory.membership`: a running node as a member of its directory.
"""
