"""What the numbers in checkpoints are: `values_of` one, `difference_of` two. In bounded memory, a block at a time."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from supervisor_core.checkpoint.bundle import Progress
from supervisor_core.checkpoint.table import Meter
from supervisor_core.checkpoint.tensor_files import Opened, open_tensors
from supervisor_core.checkpoint.tensors import Tensor
from supervisor_core.errors import CheckpointError
from supervisor_core.storage.filesystem import Filesystem

if TYPE_CHECKING:
    from supervisor_core.checkpoint.tensors import Numbers


@dataclass(frozen=True, kw_only=True)
class TensorValues:
    """What the numbers of a tensor are; None where that is not known, as for texts."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nan: int | None = None
    """The number of its elements that are not a number."""
    inf: int | None = None
    """The number of those that are infinite."""
    norm: float | None = None
    """The square root of the sum of the squares of the finite ones."""
    min: float | None = None
    """Of the finite ones, as `max`; None where there are none, and for complex numbers."""
    max: float | None = None

    @property
    def is_finite(self) -> bool:
        """Whether it has neither NaN nor infinity, as far as is known."""
        return not self.nan and not self.inf


@dataclass(frozen=True, kw_only=True)
class CheckpointValues:
    """What the numbers in a checkpoint are."""

    path: str
    format: str
    tensors: tuple[TensorValues, ...]
    """In the order of the state tree; where there is none, by name."""

    @property
    def has_nan(self) -> bool:
        """Whether a tensor has NaN. Infinity is often meant: masks have it."""
        return any(tensor.nan for tensor in self.tensors)

    @property
    def norm(self) -> float | None:
        """Of all numbers of floating-point types together; None where there are none, or it is too large."""
        return _together(tensor.norm for tensor in self.tensors if _is_real(tensor.dtype))

    @property
    def summary(self) -> str:
        """A line: the first tensor with NaN or infinity, or that there is none; types, and the norm."""
        known = [tensor for tensor in self.tensors if tensor.nan is not None]
        odd = [tensor for tensor in known if not tensor.is_finite]
        kinds = ", ".join(
            f"{count:,} {dtype}" for dtype, count in Counter(tensor.dtype for tensor in self.tensors).most_common()
        )
        left = len(self.tensors) - len(known)
        parts = [_verdict(odd, len(known)), kinds or "no tensors"]
        if left:
            parts.append(f"{left:,} without numbers")
        if self.norm is not None:
            parts.append(f"norm {self.norm:.6g}")
        return "; ".join(parts)


def _verdict(odd: list[TensorValues], known: int) -> str:
    if not known:
        return "no numbers"
    if not odd:
        return "all finite"
    first = odd[0]
    found = " and ".join(f"{count:,} {what}" for count, what in ((first.nan, "NaN"), (first.inf, "infinite")) if count)
    of = math.prod(first.shape)
    return f"NaN or infinity in {len(odd):,} of {known:,} tensors, first {first.name!r:.200}: {found} of {of:,}"


Kind = Literal["changed", "frozen", "added", "missing", "reshaped", "unknown"]
"""``frozen``: each bit is the same; ``unknown``: it has no numbers that are read."""


@dataclass(frozen=True, kw_only=True)
class TensorChange:
    """A tensor in two checkpoints; of one that is missing in one of them, dtype, shape and norm there are None."""

    name: str
    kind: Kind
    relative: float | None = None
    """The norm of the difference by the norm before; None where one of them is not finite, or the norm before is 0."""
    dtypes: tuple[str | None, str | None]
    """Before and after."""
    shapes: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    norms: tuple[float | None, float | None] = (None, None)
    """Of the finite numbers."""
    distance: float | None = None
    """The norm of the difference, of numbers that are finite."""
    largest: float | None = None
    """The largest absolute difference of two numbers that are finite."""
    not_finite: tuple[int | None, int | None] = (None, None)
    """The numbers of elements that are NaN or infinite."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What changed from one checkpoint to another."""

    before: str
    after: str
    tensors: tuple[TensorChange, ...]
    """In the order of the second one; then those that it has not."""

    @property
    def counts(self) -> Mapping[Kind, int]:
        """How many tensors there are of each kind; only those that there are."""
        return Counter(change.kind for change in self.tensors)

    @property
    def relative(self) -> float | None:
        """The relative change of all numbers of floating-point types that are in both, together; None where that is
        not known."""
        known = [
            change
            for change in self.tensors
            if change.kind in ("changed", "frozen") and any(map(_is_real, change.dtypes))
        ]
        if any(any(change.not_finite) for change in known):
            return None
        norm = _together(change.norms[0] for change in known)
        return _ratio(_together(change.distance for change in known), norm)

    @property
    def summary(self) -> str:
        """A line: how many tensors changed, are frozen, were added ...; and by how much."""
        counts = self.counts
        parts = [f"{counts[kind]:,} {_WORDS[kind]}" for kind in _WORDS if counts.get(kind)]
        text = ", ".join(parts) or "no tensors"
        return text if self.relative is None else f"{text}; relative change {percent(self.relative)}"


_WORDS: Mapping[Kind, str] = {
    "changed": "changed", "frozen": "frozen", "added": "added", "missing": "missing", "reshaped": "of another shape",
    "unknown": "without numbers",
}  # fmt: skip


def percent(relative: float | None) -> str:
    """Return a relative change in words; "-" for None.

    Example:
        >>> percent(0.0123)
        '1.23 %'
    """
    return "-" if relative is None else f"{100 * relative:.3g} %"


def values_of(
    path: str | os.PathLike[str],
    *,
    on_progress: Progress | None = None,
    filesystem: Filesystem | None = None,
    of_run: bool = False,
) -> CheckpointValues:
    """Read all numbers in a checkpoint.

    Args:
        path: see `tensor_files.open_tensors`.
        on_progress: called with (bytes done, bytes in all).
        filesystem: see `tensor_files.open_tensors`.
        of_run: see `tensor_files.open_tensors`.

    Raises:
        CheckpointError: see `tensor_files.open_tensors`.
    """
    with open_tensors(path, filesystem=filesystem, of_run=of_run) as opened:
        meter = Meter(on_progress, sum(tensor.bytes for tensor in opened.tensors))
        found = tuple(_values(tensor, meter) for tensor in opened.tensors)
        return CheckpointValues(path=opened.path, format=opened.format, tensors=found)


def difference_of(
    before: str | os.PathLike[str],
    after: str | os.PathLike[str],
    *,
    on_progress: Progress | None = None,
    of_run: bool = False,
) -> tuple[Difference, CheckpointValues]:
    """Read all numbers in two checkpoints; return what changed, and what the second one's are.

    Args:
        before: see `tensor_files.open_tensors`.
        after: the other one.
        on_progress: called with (bytes done, bytes in all), of both.
        of_run: see `tensor_files.open_tensors`.

    Raises:
        CheckpointError: see `tensor_files.open_tensors`; also if no tensor is in both.
    """
    with open_tensors(before, of_run=of_run) as first, open_tensors(after, of_run=of_run) as second:
        old = {tensor.name: tensor for tensor in first.tensors}
        if old and second.tensors and not any(tensor.name in old for tensor in second.tensors):
            raise CheckpointError(_nothing_common(first, second))
        meter = Meter(on_progress, sum(tensor.bytes for tensor in (*first.tensors, *second.tensors)))
        changes, values = [], []
        for tensor in second.tensors:
            change, value = _compared(old.pop(tensor.name, None), tensor, meter)
            changes.append(change)
            values.append(value)
        changes += [_missing(_values(tensor, meter)) for tensor in old.values()]
        found = CheckpointValues(path=second.path, format=second.format, tensors=tuple(values))
        return Difference(before=first.path, after=second.path, tensors=tuple(changes)), found


def _nothing_common(first: Opened, second: Opened) -> str:
    one, other = (f"{opened.tensors[0].name!r:.100} ({opened.format})" for opened in (first, second))
    return f"{first.path} and {second.path} have no tensor of one name: the first has {one}, the second {other}"


class _Sums:
    """What is known of some numbers: `add` takes them block by block."""

    def __init__(self) -> None:
        self.nan = self.inf = 0
        self.squares = 0.0
        self.min, self.max = math.inf, -math.inf

    def add(self, numbers: Numbers) -> None:
        import numpy as np

        wide = numbers.astype(np.float64, copy=False)
        with np.errstate(over="ignore", invalid="ignore"):
            squares = float(wide @ wide)
            if not math.isfinite(squares):
                nan = int(np.isnan(wide).sum())
                self.nan += nan
                self.inf += int(np.isinf(wide).sum())
                wide = numbers = wide[np.isfinite(wide)]
                squares = float(wide @ wide)
        self.squares += squares
        if len(numbers):
            self.min = min(self.min, float(numbers.min()))
            self.max = max(self.max, float(numbers.max()))

    def values(self, tensor: Tensor) -> TensorValues:
        """Return them as those of a tensor."""
        has_order = self.min <= self.max and not tensor.dtype.startswith("complex")
        return TensorValues(
            name=tensor.name,
            dtype=tensor.dtype,
            shape=tensor.shape,
            nan=self.nan,
            inf=self.inf,
            norm=_finite(math.sqrt(self.squares)),
            min=self.min if has_order else None,
            max=self.max if has_order else None,
        )


def _values(tensor: Tensor, meter: Meter) -> TensorValues:
    if tensor.read is None:
        return TensorValues(name=tensor.name, dtype=tensor.dtype, shape=tensor.shape)
    sums = _Sums()
    for block in tensor.blocks():
        numbers = tensor.read(block)
        sums.add(numbers)
        meter.add(tensor.bytes_of(block))
    return sums.values(tensor)


def _compared(old: Tensor | None, tensor: Tensor, meter: Meter) -> tuple[TensorChange, TensorValues]:
    """Return what changed in a tensor, and what its numbers are."""
    if old is None:
        found = _values(tensor, meter)
        return _change("added", None, found), found
    if old.shape != tensor.shape or old.read is None or tensor.read is None:
        before, after = _values(old, meter), _values(tensor, meter)
        kind: Kind = "reshaped" if old.shape != tensor.shape else "unknown"
        return _change(kind, before, after), after
    import numpy as np

    sums, difference = (_Sums(), _Sums()), _Sums()
    is_frozen = old.dtype == tensor.dtype
    most = min(tensor.numbers, old.numbers) if old.at_once or tensor.at_once else None
    for block in tensor.blocks() if most is None else tensor.blocks(most):
        first, second = old.read(block), tensor.read(block)
        meter.add(old.bytes_of(block) + tensor.bytes_of(block))
        sums[0].add(first)
        sums[1].add(second)
        if is_frozen and np.array_equal(first.view(np.uint8), second.view(np.uint8)):
            continue
        is_frozen = False
        with np.errstate(invalid="ignore", over="ignore"):
            difference.add(second.astype(np.float64, copy=False) - first)
    before, after = sums[0].values(old), sums[1].values(tensor)
    distance = _finite(math.sqrt(difference.squares))
    largest = 0.0 if is_frozen else None
    if difference.min <= difference.max:
        largest = max(abs(difference.min), abs(difference.max))
    change = _change("frozen" if is_frozen else "changed", before, after)
    relative = _ratio(distance, before.norm) if before.is_finite and after.is_finite else None
    return replace(change, relative=relative, distance=distance, largest=largest), after


def _missing(before: TensorValues) -> TensorChange:
    return _change("missing", before, None)


def _change(kind: Kind, before: TensorValues | None, after: TensorValues | None) -> TensorChange:
    return TensorChange(
        name=after.name if after is not None else before.name if before is not None else "",
        kind=kind,
        dtypes=(None if before is None else before.dtype, None if after is None else after.dtype),
        shapes=(None if before is None else before.shape, None if after is None else after.shape),
        norms=(None if before is None else before.norm, None if after is None else after.norm),
        not_finite=(_odd(before), _odd(after)),
    )


def _odd(found: TensorValues | None) -> int | None:
    """Return the number of elements that are not finite; None where that is not known."""
    return None if found is None or found.nan is None or found.inf is None else found.nan + found.inf


def _is_real(dtype: str | None) -> bool:
    """Return whether numbers are of a type that is trained: the integers of random states would outweigh the rest."""
    return dtype is not None and dtype.startswith(("float", "bfloat", "complex"))


def _together(norms: Iterable[float | None]) -> float | None:
    """Return the norm of all numbers of several tensors; None where there are none, or one is not known."""
    found = list(norms)
    known = [norm for norm in found if norm is not None]
    return None if not found or len(known) < len(found) else _finite(math.hypot(*known))


def _ratio(distance: float | None, norm: float | None) -> float | None:
    if distance is None or norm is None or not math.isfinite(distance):
        return None
    if norm == 0:
        return 0.0 if distance == 0 else None
    return _finite(distance / norm)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
