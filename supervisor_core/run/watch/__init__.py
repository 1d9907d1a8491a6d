"""Logdirs over time: which files are new, what is looked up beside them, and what is kept between two looks.

The entry is `supervisor_core.run.watch.logdir_watch.LogdirWatch`. Imports the three other packages of `run`.
"""
