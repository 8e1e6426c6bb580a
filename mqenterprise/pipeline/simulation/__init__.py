"""Traffic with known answers: a discrete-event run of a declared enterprise, which writes segments as nodes do.

* :mod:`~mqenterprise.pipeline.simulation.traffic`: what the operator says of links, loads and receivers;
* :mod:`~mqenterprise.pipeline.simulation.network`: the declared enterprise as arrays, and its next sites at any moment;
* :mod:`~mqenterprise.pipeline.simulation.journeys`: messages on their way, all of them at once, hop by hop;
* :mod:`~mqenterprise.pipeline.simulation.queues`: messages in their queues;
* :mod:`~mqenterprise.pipeline.simulation.writing`: segments, the directory's tables, and the truth.
"""
