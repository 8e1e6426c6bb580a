"""The data pipeline on Spark: what the enterprise did.

* :mod:`~mqenterprise.pipeline.session`: the Spark session, here or on a cluster;
* :mod:`~mqenterprise.pipeline.sources`: ``spark.read.format("qmnode")`` and ``format("mqdirectory")``;
* :mod:`~mqenterprise.pipeline.jobs`: functions from DataFrames to DataFrames, and
  :mod:`~mqenterprise.pipeline.catalogue`, which table comes from which;
* :mod:`~mqenterprise.pipeline.analysis`: one run of them, into :mod:`~mqenterprise.pipeline.tables`;
* :mod:`~mqenterprise.pipeline.report`: what the tables say, on one page;
* :mod:`~mqenterprise.pipeline.simulation`: traffic with known answers.
"""
