"""Loads exported models where supervisor_core is not to be had, and prints what each makes of 3.0.

python -I serve.py DIRECTORY NAME...

The last part of a name is the kind of export: builder, simple, frozen or meta.
"""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import tensorflow as tf

sys.modules["supervisor_core"] = None  # type: ignore[assignment]
v1 = tf.compat.v1
v1.disable_eager_execution()


def load(sess: Any, kind: str, directory: str) -> None:
    """Bring a model into the session's graph."""
    if kind == "frozen":
        with open(os.path.join(directory, "frozen.pb"), "rb") as file:
            tf.import_graph_def(v1.GraphDef.FromString(file.read()), name="")
    elif kind == "meta":
        saver = v1.train.import_meta_graph(os.path.join(directory, "model.meta"))
        saver.restore(sess, os.path.join(directory, "model"))
    else:
        v1.saved_model.load(sess, ["serve"], directory)


for name in sys.argv[2:]:
    with tf.Graph().as_default(), v1.Session() as sess:
        load(sess, os.path.basename(name), os.path.join(sys.argv[1], name))
        print(f"{name}:{sess.run('doubled:0', {'given:0': [3.0]})[0]}")
