"""A run and its parts as plain frozen values, and the words for them: no I/O, no clock.

The entry is `supervisor_core.run.model.run.Run`. Imports records of `events`, and nothing else of `run`.
"""
