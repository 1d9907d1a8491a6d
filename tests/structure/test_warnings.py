"""Warnings are errors in the tests, but for two that TensorBoard's and protobuf's own code give rise to."""

from __future__ import annotations

import warnings

import pytest

from tests.cases import each

TEXT = "Setting the dtype on a NumPy array has been deprecated in NumPy 2.5."


def warn(text: str, category: type[Warning], module: str) -> None:
    """Give a warning as a line of that module would."""
    warnings.warn_explicit(text, category, f"{module}.py", 1, module)


def test_a_deprecation_in_tensorboards_reader_fails_no_test() -> None:
    """What TensorBoard does with NumPy is not ours to mend: the tests run on every Python and NumPy."""
    warn(TEXT, DeprecationWarning, "tensorboard.util.tensor_util")


@each(
    "text, category, module",
    [
        (TEXT, DeprecationWarning, "supervisor_core.events.columns"),
        (TEXT, DeprecationWarning, "tensorboard_of_our_own.util.tensor_util"),
        (TEXT, DeprecationWarning, "tensorboard.util.tensor_util_too"),
        (TEXT, UserWarning, "tensorboard.util.tensor_util"),
        ("Type google._upb._message.Arena is deprecated", DeprecationWarning, "importlib._bootstrap"),
        ("Something else has been deprecated", DeprecationWarning, "tensorboard.util.tensor_util"),
    ],
)
def test_every_other_warning_is_an_error(text: str, category: type[Warning], module: str) -> None:
    """The same in our own code, and anything else in TensorBoard's, still fails."""
    with pytest.raises(category):
        warn(text, category, module)
