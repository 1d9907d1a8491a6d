"""TensorFlow's own classes that are good as they are, so that one import gives everything a program needs.

What a `NanTensorHook` sees is looked at by the checkpoints too (`LossWatch`). None of them writes to the run, and none
asks for more than what it was made for.
"""

from __future__ import annotations

import tensorflow as tf

Scaffold = tf.compat.v1.train.Scaffold
SessionCreator = tf.compat.v1.train.SessionCreator
SessionRunHook = tf.compat.v1.train.SessionRunHook
SessionRunArgs = tf.compat.v1.train.SessionRunArgs
SessionRunContext = tf.compat.v1.train.SessionRunContext
SessionRunValues = tf.compat.v1.train.SessionRunValues
CheckpointSaverListener = tf.compat.v1.train.CheckpointSaverListener
LoggingTensorHook = tf.compat.v1.train.LoggingTensorHook
NanTensorHook = tf.compat.v1.train.NanTensorHook
NanLossDuringTrainingError = tf.compat.v1.train.NanLossDuringTrainingError
FinalOpsHook = tf.compat.v1.train.FinalOpsHook
FeedFnHook = tf.compat.v1.train.FeedFnHook
