"""The successor of ``tf.train.Supervisor``: trainings that run for days stay alive, and can be watched.

Importing this loads neither tensorflow nor tensorboard; the names below load their modules when first used.
"""
