"""The report: one self-contained HTML file, mostly pictures.

* :mod:`~mqenterprise.pipeline.report.figures`: the numbers to draw, from the tables;
* :mod:`~mqenterprise.pipeline.report.plots`: drawing, with matplotlib, as SVG;
* :mod:`~mqenterprise.pipeline.report.shell`: the frame of a page, with its style and script;
* :mod:`~mqenterprise.pipeline.report.page`: the page.
"""
