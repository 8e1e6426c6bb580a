"""The data sources for Spark: messages and events of nodes, and the directory.

* :mod:`~mqenterprise.pipeline.sources.qmnode_source`: ``format("qmnode")`` and its options;
* :mod:`~mqenterprise.pipeline.sources.directory_source`: ``format("mqdirectory")``, its tables and options;
* :mod:`~mqenterprise.pipeline.sources.events`: exported events, at once and as a stream;
* :mod:`~mqenterprise.pipeline.sources.reading`: the same events for jobs, by Spark's own Parquet reader;
* :mod:`~mqenterprise.pipeline.sources.checkpoints`: messages in copies of stores, and
  :mod:`~mqenterprise.pipeline.sources.message_columns`: their columns;
* :mod:`~mqenterprise.pipeline.sources.segments`: the choice of segments, and reading one;
* :mod:`~mqenterprise.pipeline.sources.ranges`: the sets of known events;
* :mod:`~mqenterprise.pipeline.sources.quarantine`: the list of unreadable segments.

Nothing is imported here, so that a task that reads segments does not load the code for directories.
"""
