"""A small convolutional network learns handwritten digits, and survives whatever ends its process.

    python -m examples.digits --logdir /tmp/digits --steps 4000

Kill it in any way you like and type the same again: it goes on from its last checkpoint, in the middle of the epoch.
The data come with scikit-learn: 1,797 images of 8 by 8 pixels. Prints one JSON object per line: where it starts, the
accuracy on images it has never seen, and where it ends. Runs just as well under ``tf.compat.v1.train.Supervisor``,
which knows no ``options=``.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import logging
import os
import signal
import time
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits

from supervisor_core import Options, Supervisor

TEST_IMAGES = 297


class Data(NamedTuple):
    """Images, float32 from 0 to 1 of shape [n, 8, 8, 1], and their digits."""

    images: np.ndarray[Any, Any]
    labels: np.ndarray[Any, Any]


class Model(NamedTuple):
    """The ends of the graph that the training takes hold of."""

    images: Any
    labels: Any
    train_op: Any
    accuracy: Any
    summary_op: Any


def main() -> None:
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    train, test = load_data()
    steps_per_epoch = len(train.images) // args.batch_size
    tf.disable_eager_execution()
    with tf.Graph().as_default():
        tf.set_random_seed(args.seed)
        model = build_model()
        is_new = tf.train.latest_checkpoint(args.logdir) is None
        sv = Supervisor(
            logdir=args.logdir,
            summary_op=None,  # it needs a batch fed, so the loop below runs it
            save_model_secs=args.save_secs,
            options=Options(metrics_address=args.metrics_address),
        )
        with sv.managed_session() as sess:
            step = int(sess.run(sv.global_step))
            say(start_step=step, steps_per_epoch=steps_per_epoch)
            sv.loop(args.eval_secs, evaluate, args=(sv, sess, model, test))
            while step < args.steps and not sv.should_stop():
                if step == args.hang_at and is_new:
                    block_the_interpreter()
                chosen = batch_of(step, args.batch_size, len(train.images), args.seed)
                feed = {model.images: train.images[chosen], model.labels: train.labels[chosen]}
                if step % args.summary_steps == 0:
                    _, summary = sess.run([model.train_op, model.summary_op], feed)
                    sv.summary_computed(sess, summary, step + 1)
                else:
                    sess.run(model.train_op, feed)
                step += 1
                if step == args.die_at and is_new:
                    os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory is full
            if step >= args.steps:
                evaluate(sv, sess, model, test)
            say(end_step=step)


def batch_of(step: int, size: int, images: int, seed: int) -> np.ndarray[Any, Any]:
    """Return which images a step trains on.

    It depends on the step alone, so a resumed run goes on in the middle of the epoch, with the images not yet seen.
    """
    epoch, position = divmod(step, images // size)
    order = np.random.default_rng([seed, epoch]).permutation(images)
    return order[position * size : (position + 1) * size]


def evaluate(sv: Any, sess: Any, model: Model, test: Data) -> None:
    feed = {model.images: test.images, model.labels: test.labels}
    step, accuracy = sess.run([sv.global_step, model.accuracy], feed)
    value = tf.Summary.Value(tag="test/accuracy", simple_value=accuracy)
    sv.summary_computed(sess, tf.Summary(value=[value]), step)
    say(step=int(step), test_accuracy=round(float(accuracy), 4))


def block_the_interpreter() -> None:
    """Wait without end in native code that keeps the interpreter's lock, as an extension with a defect does."""
    time.sleep(3.0)  # by then the session knows how long a step takes
    mutex = ctypes.create_string_buffer(64)  # of the C library, unlocked
    library = ctypes.PyDLL(None)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def build_model() -> Model:
    images = tf.placeholder(tf.float32, [None, 8, 8, 1], name="images")
    labels = tf.placeholder(tf.int64, [None], name="labels")
    hidden = tf.nn.relu(tf.nn.conv2d(images, weights("conv1", 3, 3, 1, 32), 1, "SAME"))
    hidden = tf.nn.relu(tf.nn.conv2d(hidden, weights("conv2", 3, 3, 32, 64), 1, "SAME"))
    hidden = tf.reshape(tf.nn.max_pool2d(hidden, 2, 2, "VALID"), [-1, 4 * 4 * 64])
    hidden = tf.nn.relu(tf.matmul(hidden, weights("dense", 4 * 4 * 64, 64)))
    logits = tf.matmul(hidden, weights("logits", 64, 10))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
    train_op = tf.train.AdamOptimizer(1e-3).minimize(loss, tf.train.get_or_create_global_step())
    summaries = [tf.summary.scalar("train/loss", loss), tf.summary.scalar("train/accuracy", accuracy)]
    return Model(images, labels, train_op, accuracy, tf.summary.merge(summaries))


def weights(name: str, *shape: int) -> Any:
    return tf.get_variable(name, shape, initializer=tf.glorot_uniform_initializer())


def load_data() -> tuple[Data, Data]:
    """Return the images to train on and those to test with; the same split whatever the seed."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.images))
    images = (digits.images[order] / 16).astype(np.float32)[..., np.newaxis]
    labels = digits.target[order].astype(np.int64)
    return Data(images[TEST_IMAGES:], labels[TEST_IMAGES:]), Data(images[:TEST_IMAGES], labels[:TEST_IMAGES])


def say(**facts: float) -> None:
    print(json.dumps(facts), flush=True)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.digits", description="Learn to read handwritten digits.")
    parser.add_argument("--logdir", required=True, help="where checkpoints and events go, and are resumed from")
    parser.add_argument("--steps", type=int, default=4000, help="train up to this global step (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=16, help="images per step (%(default)s)")
    parser.add_argument("--save-secs", type=float, default=10, help="seconds between checkpoints (%(default)s)")
    parser.add_argument("--eval-secs", type=float, default=5, help="seconds between evaluations (%(default)s)")
    parser.add_argument("--summary-steps", type=int, default=20, help="steps between summaries (%(default)s)")
    parser.add_argument("--metrics-address", help="serve Prometheus metrics there: host:port, or :0 for a free port")
    parser.add_argument("--hang-at", type=int, help="block the interpreter at this step, unless it was resumed")
    parser.add_argument("--die-at", type=int, help="kill this process at this step, unless it was resumed")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the order of images (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
