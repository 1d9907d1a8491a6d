"""The graph-mode facades on ``tf.compat.v1``: the only package here, beside the Keras one, that imports tensorflow."""

from supervisor_core.tf1.verbosity import follow_tensorflow

follow_tensorflow()
