"""The frameworks of ``--framework``: each one's example, what it needs, and what it records. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

STEPS_PER_EPOCH = 30
"""1,500 images in batches of 50, in each of the examples."""
SAVE_SECS = 1.0


@dataclass(frozen=True, kw_only=True)
class Framework:
    """A framework, and the example that trains with it."""

    name: str
    """On the command line; of the adapter, of its extra and of its documentation page, too."""
    title: str
    modules: tuple[str, ...]
    """What the example imports, by which it is seen whether all is installed."""
    beside: tuple[str, ...]
    """What is installed besides the extra."""
    epochs: int
    """So many that there is time to kill it and to stop it."""
    loss: str
    """The tag of a scalar that is the same bits whenever a step is trained again, if the resume was exact."""
    accuracy: str
    """The tag of the accuracy on the test images."""
    environ: Mapping[str, str] = field(default_factory=dict)
    oldest_python: tuple[int, int] = (3, 10)

    @property
    def program(self) -> str:
        """The example's module."""
        return f"examples.{self.name}_digits"

    def options(self, steps: int) -> tuple[str, ...]:
        """Return the example's options for a training of at least this many steps."""
        return ("--epochs", str(-(-steps // STEPS_PER_EPOCH)), "--save-secs", str(SAVE_SECS))


_DIGITS = "scikit-learn>=1.4"

FRAMEWORKS = {
    framework.name: framework
    for framework in (
        Framework(
            name="keras",
            title="Keras",
            modules=("keras", "jax", "sklearn"),
            beside=(_DIGITS, "jax>=0.7"),
            epochs=120,
            loss="loss",
            accuracy="val_accuracy",
            environ={"KERAS_BACKEND": "jax"},
            oldest_python=(3, 11),
        ),
        Framework(
            name="torch",
            title="PyTorch",
            modules=("torch", "sklearn"),
            beside=(_DIGITS,),
            epochs=250,
            loss="loss",
            accuracy="accuracy",
        ),
        Framework(
            name="lightning",
            title="Lightning",
            modules=("lightning", "torch", "sklearn"),
            beside=(_DIGITS,),
            epochs=150,
            loss="loss",
            accuracy="accuracy",
        ),
        Framework(
            name="transformers",
            title="Transformers",
            modules=("transformers", "accelerate", "torch", "sklearn"),
            beside=(_DIGITS,),
            epochs=120,
            loss="eval/loss",
            accuracy="eval/accuracy",
        ),
        Framework(
            name="jax",
            title="JAX",
            modules=("jax", "orbax", "grain", "optax", "sklearn"),
            beside=(_DIGITS, "grain>=0.2.11", "optax>=0.2.5"),
            epochs=120,
            loss="loss",
            accuracy="accuracy",
            oldest_python=(3, 11),
        ),
    )
}
