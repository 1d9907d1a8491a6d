/** No run yet: how to get one. */
import { h } from "./element";

/** The directory as a string of JSON, which is one of Python, too. */
const code = (logdir: string): string => `import tensorflow.compat.v1 as tf
from supervisor_core import Supervisor

supervisor = Supervisor(logdir=${JSON.stringify(`${logdir}/my-run`)})
with supervisor.managed_session() as session:
    while not supervisor.should_stop():
        session.run(train_op)`;

export function emptyPage(logdir: string): HTMLElement {
  return h(
    "section",
    { class: "empty", "aria-label": "No runs yet" },
    h("h2", {}, "No runs yet"),
    h(
      "p",
      {},
      "There are no events files in ",
      h("code", {}, logdir || "the logdir"),
      " so far. This page fills by itself once there are.",
    ),
    h(
      "p",
      {},
      "Runs of any writer show up here: tf.train, Keras, PyTorch, Lightning, JAX. A supervised run records everything:",
    ),
    h("pre", { tabindex: 0 }, code(logdir || "logdir")),
  );
}
