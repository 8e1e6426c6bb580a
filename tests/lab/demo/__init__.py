"""``make demo``: the main job, told as a story of three sites.

* ``__main__``: the command line: run it, keep it, stop it.
* ``chapters``: the story, chapter after chapter, each with the promise that it shows.
* ``declared``: the enterprise and the queues it is about.
* ``flow``: transactional messages that flow while something is broken.
* ``telling``: what is printed: a line for each chapter, and the table at the end.
"""
