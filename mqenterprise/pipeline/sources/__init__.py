"""What Spark reads: the messages and events of nodes, and the directory.

* :mod:`~mqenterprise.pipeline.sources.qmnode_source`: ``format("qmnode")`` and its options;
* :mod:`~mqenterprise.pipeline.sources.directory_source`: ``format("mqdirectory")``, its tables and options;
* :mod:`~mqenterprise.pipeline.sources.events`: exported events, at once and as a stream;
* :mod:`~mqenterprise.pipeline.sources.reading`: the same events for jobs, by Spark's own Parquet reader;
* :mod:`~mqenterprise.pipeline.sources.checkpoints`: messages in copies of stores, and
  :mod:`~mqenterprise.pipeline.sources.message_columns`: their columns;
* :mod:`~mqenterprise.pipeline.sources.segments`: which segments to read, and reading one;
* :mod:`~mqenterprise.pipeline.sources.ranges`: which events are known;
* :mod:`~mqenterprise.pipeline.sources.quarantine`: the list of what could not be read.

Nothing is imported here: a task that reads segments need not load what talks to a directory.
"""
