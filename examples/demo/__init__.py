"""The main job, shown: a training is killed, resumes, is stopped, loses nothing and finishes.

trainer.py   the training, in a process of its own
metrics.py   what that process says over HTTP
telemetry.py what it leaves in its events files
story.py     what was seen, and which promises that proves; plain data
acts.py      start, kill, start, stop, start
display.py   the terminal, or plain lines in a pipe
summary.py   what was seen, the figures, and what to type next
board.py     TensorBoard on the result
"""
