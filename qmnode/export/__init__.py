"""What a node tells the pipeline: events, in rolled Parquet segments in a directory or a bucket.

* :mod:`~qmnode.export.events`: what can happen, and the columns that tell it;
* :mod:`~qmnode.export.segment`: one segment: its schema, its name, written whole and read back;
* :mod:`~qmnode.export.places`: directories and buckets by one name.

Only the last two need pyarrow, which comes with the extra ``export``.
"""
