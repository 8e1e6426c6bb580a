"""The jobs: functions from DataFrames to DataFrames that know nothing of storage.

``message_life`` and ``capacity.sizes_of`` read events. All other jobs work on their tables and the directory.
``mqenterprise/pipeline/catalogue.py`` says which table comes from which function.
"""
