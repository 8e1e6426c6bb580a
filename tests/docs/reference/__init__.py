"""Pages of the site that are made from the code: commands, settings, API, metrics, modules, tables, errors."""
