"""The report: one HTML file that needs nothing else, to be looked at more than read.

* :mod:`~mqenterprise.pipeline.report.figures`: what there is to draw, from the tables;
* :mod:`~mqenterprise.pipeline.report.plots`: drawing, with matplotlib, as SVG;
* :mod:`~mqenterprise.pipeline.report.page`: the page.
"""
