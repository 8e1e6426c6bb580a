"""The jobs: functions from DataFrames to DataFrames, each with nothing of storage in it.

``message_life`` and ``capacity.sizes_of`` read events; everything else follows from their tables and the directory.
``mqenterprise/pipeline/catalogue.py`` says which table comes from which function.
"""
