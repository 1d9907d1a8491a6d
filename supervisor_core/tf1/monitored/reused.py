"""TensorFlow's own classes that are good as they are, so that one import gives everything a program needs.

`StopAtStepHook` fetches the global step with each run, since it must not be one step late; `NanTensorHook` is looked at
by the checkpoints too (`LossWatch`). The rest neither writes to the run nor costs anything while it has nothing to do.
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
StopAtStepHook = tf.compat.v1.train.StopAtStepHook
LoggingTensorHook = tf.compat.v1.train.LoggingTensorHook
NanTensorHook = tf.compat.v1.train.NanTensorHook
NanLossDuringTrainingError = tf.compat.v1.train.NanLossDuringTrainingError
FinalOpsHook = tf.compat.v1.train.FinalOpsHook
FeedFnHook = tf.compat.v1.train.FeedFnHook
