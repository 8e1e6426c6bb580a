"""A node's events for the pipeline, in rolled Parquet segments in a directory or a bucket.

* :mod:`~qmnode.export.events`: the kinds of events, and their columns;
* :mod:`~qmnode.export.segment`: one segment: its schema, its name, written whole and read back;
* :mod:`~qmnode.export.places`: directories and buckets under one kind of name.

Only the last two need pyarrow, which comes with the extra ``export``.
"""
