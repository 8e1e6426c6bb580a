"""The commands of ``qmnode``, one module each.

To add a command, write ``qmnode/commands/NAME.py`` with a ``typer.Typer`` and a row for it in the table of
``qmnode/commands/command_table.py``. The module is imported when its command is run, and only then. The rules of all
commands:

* exit code 0: done; 1: failed, or a check found something; 2: used wrongly;
* results go to standard output, all else to standard error;
* a failure is one sentence that says what to do, with the field's error code where there is one, never a traceback;
* starting is cheap. A module imports at its top only what every call of it needs. ``status`` loads no library at all.
  ``run`` answers ``status`` when the queues are open. A thread then loads what has to do with other queue managers
  (``qmnode.outside``), for which all other calls wait, and after it what serves HTTP. Features that few nodes use
  (export, remote read and its authentication, settings in the environment) are loaded when they are used.
  ``tests/commands/test_start.py`` lists what must not be loaded.
"""
