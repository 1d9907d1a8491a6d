"""A training is killed, resumes, is stopped, loses no saved step and finishes.

trainer.py   the training, in a process of its own
metrics.py   its metrics over HTTP
frameworks.py the examples of other frameworks
recorded.py  what they record of themselves
telemetry.py its events files
story.py     what was measured, and the checks; plain data
acts.py      start, kill, start, stop, start
display.py   the terminal, or plain lines in a pipe
summary.py   the checks, the figures, and what to type next
board.py     TensorBoard on the result
"""
