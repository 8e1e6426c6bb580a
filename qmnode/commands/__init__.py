"""The commands of ``qmnode``, one module each.

To add a command, write ``qmnode/commands/NAME.py`` with a ``typer.Typer`` and a row for it in the table of
``qmnode/cli.py``. The module is imported when its command is run, and only then. What all commands hold to:

* exit code 0: done; 1: failed, or a check found something; 2: used wrongly;
* results go to standard output, all else to standard error;
* a failure is one sentence that says what to do, with the field's error code where there is one, never a traceback.
"""
