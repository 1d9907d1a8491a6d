"""`TrainingState`: everything a checkpoint has of a training, captured and restored by name.

The program's objects (model, optimizer, data ...), the random states of the process, and counters. A restore returns
an `Exactness`: whether training goes on exactly as it would have, and if not, every reason by name.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from supervisor_core.base.errors import CheckpointError
from supervisor_core.checkpoint.manifest import Manifest
from supervisor_core.events.telemetry import NOT_OBSERVED, ResumeRecord
from supervisor_core.training import random_state
from supervisor_core.training.objects import Environment, Part, access, flattened
from supervisor_core.training.random_state import RandomSource, process_sources
from supervisor_core.training.step_loop import LoopWatch
from supervisor_core.training.tree import ArrayKind, Copied, NumpyArrays, Room, check_tree, copy_tree, other_dtypes
from supervisor_core.training.values import Values
from supervisor_core.training.variables import is_generator

DATA = "data"
"""The name of the object that keeps the position in the training data."""

BY_STEP = "step"
"""Given as the data: the number of the step alone decides the batch."""

NO_DATA_POSITION = (
    f'The position in the training data is not captured: the state has no "{DATA}". Batches may repeat or be left out. '
    f'If the number of the step decides the batch, say so: "{DATA}" is "{BY_STEP}".'
)

NOT_THE_SAVED_ONE = "The position in the data is not the saved one: batches may repeat or be left out."

MID_STEP = "It was saved when the program had left its loop in the middle of a step: that step may be done twice."


@dataclass(frozen=True)
class Exactness:
    """Whether a resume was exact."""

    reasons: tuple[str, ...] = ()
    """Why it was not, or may not have been: one sentence each."""
    observed: str | None = None
    """What the recomputed steps have shown so far, as ``3 of 3 recomputed losses equal``; None while nothing was
    compared. Where a value differs, the first of `reasons` says so."""

    def seen_by(self, check: ResumeRecord | None) -> Exactness:
        """Return this with what the recomputed steps have shown."""
        if check is None:
            return self
        return Exactness(((f"{check.text}.",) if check.tag else ()) + self.reasons, observed=check.text)

    @property
    def is_exact(self) -> bool:
        """Whether there is no reason against it."""
        return not self.reasons

    @property
    def verdict(self) -> str:
        """``not exact: why``, ``observed exact (3 of 3 recomputed losses equal)``, or ``not observed``."""
        if self.reasons:
            return f"not exact: {' '.join(self.reasons)}"
        return NOT_OBSERVED if self.observed is None else f"observed exact ({self.observed})"


def without_step(objects: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """Return objects without `BY_STEP` as the data, and whether that was among them."""
    if not isinstance(objects, Mapping) or not isinstance(given := objects.get(DATA), str) or given != BY_STEP:
        return objects, False
    return {name: target for name, target in objects.items() if name != DATA}, True


@dataclass(frozen=True, kw_only=True)
class Captured:
    """The state of one moment, in host memory."""

    tree: Mapping[str, Any]
    counters: Mapping[str, int]
    names: tuple[str, ...]
    not_captured: tuple[str, ...]
    data_position: str | None
    compared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Texts of the values that are not restored, but compared, by name."""
    staging: str | None = None
    """A directory of the store's that has some of the files already; None where there are none."""
    blocked_secs: float = 0.0
    """How long the training was blocked before, to write those."""


@dataclass(kw_only=True)
class TrainingState:
    """The parts of a training's state; see the module's docstring."""

    objects: Mapping[str, Any] = field(default_factory=dict)
    """The program's objects by name: those with ``state_dict``/``load_state_dict`` or ``get_state``/``set_state``, and
    dicts, lists and tuples of them; see `flattened`."""
    counters: dict[str, int] = field(default_factory=dict)
    """Counters besides the step, as ``epoch`` and ``batch``."""
    sources: Callable[[], tuple[RandomSource, ...]] = process_sources
    """Returns the random sources of this process."""
    kinds: tuple[ArrayKind, ...] = (NumpyArrays(),)
    """The kinds of arrays in the objects' states."""
    facts: Callable[[], Mapping[str, str]] = dict
    """Returns what has to be the same for an exact resume: name, as "number of workers" -> value."""
    limits: Callable[[], tuple[str, ...]] = tuple
    """Returns sentences: what cannot be captured."""
    watched: Callable[[], Mapping[str, Any]] = dict
    """Returns arrays to note digests of, by name, besides those of the objects that are no `Part`."""
    data_by_step: bool = False
    """Whether the number of the step alone decides the batch."""
    can_be_read_in_place: bool = False
    """Whether its kinds of arrays can be written without a copy: `Options.snapshot`."""

    watch: LoopWatch | None = None
    """What the framework looks at around a loop over `Run.steps`."""
    looked_into: Mapping[str, Any] = field(default_factory=dict)
    """Objects whose attributes are compared, by name."""
    present: Callable[[], Iterable[Any]] | None = None
    """See `Values`."""
    unwrap: Callable[[Any], Any] = field(default=lambda value: value)
    """See `Values`."""
    words: Mapping[str, str] = field(default_factory=dict)
    """See `Values`."""
    is_generator: Callable[[Any], bool] = is_generator
    """See `Values`."""
    given: tuple[Any, ...] = ()
    """What the program has given, as it is."""
    values: Values | None = None
    """What is compared; None before the loop begins."""
    compared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What the restored checkpoint has of values."""

    says_changes: Callable[[str], object] | None = None
    """Says that a restart fails as the program is, since it has changed the structure of an object; said once."""
    _structures: dict[str, object] = field(default_factory=dict)
    """Those that the program has begun with, which a restart begins with, too."""

    is_mid_step: bool = False
    """Whether the program has left its loop in the middle of a step: its state may be of the next one."""

    def __post_init__(self) -> None:
        self.objects, by_step = without_step(self.objects)
        self.data_by_step |= by_step
        given, self.objects = self.objects, flattened(self.objects)
        self.given = (*self.given, *given.values())
        for name, target in self.objects.items():
            access(name, target)

    @property
    def has_data(self) -> bool:
        """Whether the position in the training data is captured."""
        return DATA in self.objects

    def add(self, name: str, part: Part) -> None:
        """Have one more object in the state; before the session begins.

        Raises:
            ValueError: if there is one of that name.
        """
        if name in self.objects:
            raise ValueError(f"The state has an object {name!r} already; give that one another name.")
        self.objects = {**self.objects, name: part}

    def probe(self) -> None:
        """See whether the state can be saved, before anything is restored or trained. Copies no array, waits for no
        device, and leaves the random states as they are.

        Raises:
            CheckpointError: if an object does not return its state, or one with a value that cannot be saved.
        """
        sources = self.sources()
        before = random_state.capture(sources)
        try:
            for name, target in self.objects.items():
                own = target.probe if isinstance(target, Part) else access(name, target).get
                self._structures[name] = structure_of(target, probe(own, self.kinds, f"state[{name!r}]"))
            self._probe_facts()
        finally:
            random_state.restore(sources, before)

    def _probe_facts(self) -> None:
        try:
            self.facts()
        except Exception as error:
            raise CheckpointError(
                f"Nothing can be saved: what a checkpoint says of the training is not known, because of "
                f"{type(error).__name__}: {error}"
            ) from error

    def capture(self, step: int, *, in_place: bool = False, room: Room | None = None) -> Captured:
        """Copy the state of this moment to host memory.

        Args:
            in_place: refer to the arrays of the objects instead: the training waits until they are written.
            room: see `copy_tree`.

        Raises:
            CheckpointError: if an object's state has a value that cannot be saved.
        """
        tree = self.copied(self.objects, in_place=in_place, room=room)
        self._say_changes(tree["objects"])
        has_data = self.has_data
        is_data_named = has_data or self.data_by_step or (self.watch is not None and self.values is not None)
        return Captured(
            tree=tree,
            counters={"step": step, **self.counters},
            names=(*self.objects, *(f"random:{name}" for name in tree["random"])),
            not_captured=(
                *(() if is_data_named else (NO_DATA_POSITION,)),
                *((MID_STEP,) if self.is_mid_step else ()),
                *self.all_limits(),
            ),
            data_position=digest(tree["objects"][DATA]) if has_data else None,
            compared=self.values_now(),
        )

    def loop_values(self) -> Values:
        """Return what compares the values of a loop over steps."""
        is_range = self.watch is not None and not (self.has_data or self.data_by_step)
        return Values(
            (*self.objects.values(), *self.given), self.looked_into,
            is_range=is_range, by_steps=True, present=self.present, unwrap=self.unwrap, words=self.words,
            is_generator=self.is_generator,
        )  # fmt: skip

    def values_now(self) -> Mapping[str, tuple[str, ...]]:
        """Return the texts of the values that a checkpoint does not restore, by name."""
        return {} if self.values is None else self.values.now()

    def _say_changes(self, objects: Mapping[str, Any]) -> None:
        if self.says_changes is None:
            return
        present = {name: structure_of(self.objects[name], tree) for name, tree in objects.items()}
        before = self._structures
        changed = [name for name, found in present.items() if before.get(name) is not None and before[name] != found]
        if changed:
            self.says_changes(CHANGED.format(" and ".join(changed)))
            self.says_changes = None

    def all_limits(self) -> tuple[str, ...]:
        """Return what cannot be captured: sentences."""
        watched = () if self.watch is None else self.watch.limits
        watched += () if self.values is None else self.values.limits
        unsaved = (item.limit for item in self.objects.values() if isinstance(item, Environment))
        return (*self.limits(), *watched, *unsaved)

    def copied(self, names: Iterable[str], *, in_place: bool = False, room: Room | None = None) -> dict[str, Any]:
        """Return the states of objects, by their names, and the random states, copied to host memory.

        Args:
            in_place: see `capture`; the position in the data is copied all the same.
            room: see `copy_tree`.

        Raises:
            CheckpointError: if an object's state has a value that cannot be saved.
        """
        objects = {
            name: copy_tree(
                access(name, self.objects[name]).get(),
                self.kinds,
                f"state[{name!r}]",
                in_place=in_place and name != DATA,
                room=room,
            )
            for name in names
        }
        states = copy_tree(random_state.capture(self.sources()), self.kinds, "the random state")
        return {"objects": objects, "random": states}

    def resume(self, manifest: Manifest, tree: Any, versions: Mapping[str, str]) -> Exactness:
        """Set everything to a checkpoint's, and return what is known against an exact resume.

        Args:
            manifest: the checkpoint's.
            versions: the packages' versions of this process.

        Raises:
            CheckpointError: see `restore`.
        """
        return Exactness(tuple(dict.fromkeys(self.reasons(manifest, tree, versions))))

    def reasons(self, manifest: Manifest, tree: Any, versions: Mapping[str, str]) -> list[str]:
        """Do as `resume`; return what keeps it from being exact: sentences."""
        self.compared = manifest.compared
        reasons = [*manifest.not_captured, *self.restore(tree, manifest.counters, manifest.data_position)]
        present = self.facts()
        for name, value in manifest.facts.items():
            if (now := present.get(name)) is not None and now != value:
                reasons.append(f"Another {name}: {value} at the save, {now} now.")
        for package, version in manifest.versions.items():
            if (now := versions.get(package)) is not None and now != version:
                reasons.append(f"Another version of {package}: {version} at the save, {now} now.")
        return reasons

    def restore(self, tree: Any, counters: Mapping[str, int], position: str | None = None) -> list[str]:
        """Set the objects, the counters and the random states to a checkpoint's.

        Args:
            tree: what was captured, as it was read.
            position: the digest of its data position; None where it has none.

        Returns:
            What differs from the saved moment now: one sentence each.

        Raises:
            CheckpointError: if the checkpoint is of another training, or an object refuses its state.
        """
        if not isinstance(tree, dict) or not isinstance(objects := tree.get("objects"), dict):
            raise CheckpointError("The checkpoint has no state tree of a training.")
        reasons = []
        for name, target in self.objects.items():
            if name not in objects:
                reasons.append(f'"{name}" is not in the checkpoint: it starts fresh.')
                continue
            try:
                access(name, target).set(objects[name])
            except Exception as error:
                raise CheckpointError(
                    f"state[{name!r}] refused the checkpoint's state: {type(error).__name__}: {error}"
                    f"{'' if self.says_changes is None else BEFORE}"
                ) from error
            if isinstance(target, Part):
                reasons += [target.shift] if target.shift and name != DATA else []
            elif name != DATA:
                reasons += _other_dtypes(name, objects[name], access(name, target).get())
        reasons += [
            f'"{name}" is in the checkpoint, and this program has no state of that name.'
            for name in objects
            if name not in self.objects
        ]
        self.counters.update({name: value for name, value in counters.items() if name != "step"})
        if position is not None and (data := self.objects.get(DATA)) is not None:
            present = digest(copy_tree(access(DATA, data).get(), self.kinds, "the data position"))
            if present != position:
                reasons.append((data.shift if isinstance(data, Part) else None) or NOT_THE_SAVED_ONE)
        return reasons + random_state.restore(self.sources(), tree.get("random", {}))


def _other_dtypes(name: str, saved: Any, present: Any) -> list[str]:
    """Return what an object has converted when its state was set: a sentence for each pair of dtypes."""
    found: dict[tuple[str, str], list[str]] = {}
    for path, before, now in other_dtypes(saved, present):
        found.setdefault((before, now), []).append(path)
    reasons = []
    for (before, now), (first, *others) in found.items():
        more = f" and {len(others)} more" if others else ""
        reasons.append(f'Another dtype in "{name}" ({first}{more}): {before} at the save, {now} now.')
    return reasons


def summary(values: Iterable[str]) -> str:
    """Return the value that all parts of a model have; where they differ how many have which, and a digest of each
    part's: for `TrainingState.facts`."""
    parts = list(values)
    counts = Counter(parts)
    if len(counts) < 2:
        return "".join(counts) or "none"
    found = ", ".join(f"{count} x {value}" for value, count in sorted(counts.items()))
    return f"{found} (digest {hashlib.sha256(' '.join(parts).encode()).hexdigest()[:6]})"


BEFORE = (
    " If the program changes the structure while it trains, make that change in Options(on_restore=function), which is "
    "called before the restore."
)
CHANGED = (
    "The program has changed the structure of {} since it began: a restart fails unless Options(on_restore=function) "
    "makes that change before the restore."
)


def structure_of(target: Any, state: Any) -> object:
    """Return what a state must have to be restored into an object as it is: of a PyTorch module its names and shapes,
    of an optimizer the sizes of its groups; None of others, and where it is not known.

    Args:
        state: the object's, or a copy of it.
    """
    if not isinstance(state, Mapping):
        return None
    if isinstance(groups := state.get("param_groups"), list):
        return [len(group.get("params", ())) for group in groups]
    if not hasattr(target, "named_parameters"):
        return None
    leaves = [item.value if type(item) is Copied else item for item in state.values()]
    if any(kind.__name__.startswith("Uninitialized") for kind in set(map(type, leaves))):
        return None  # of a lazy module, whose shapes its first batch decides
    return list(state), [getattr(item, "shape", None) for item in leaves]


def probe(get: Callable[[], Any], kinds: tuple[ArrayKind, ...], path: str) -> Any:
    """See whether a state can be saved, and return it. Copies no array, and waits for no device.

    Args:
        get: returns it.
        path: its name, for errors.

    Raises:
        CheckpointError: if it is not returned, or has a value that cannot be saved.
    """
    try:
        tree = get()
    except Exception as error:
        raise CheckpointError(
            f"{path} cannot be saved: its state is not returned, but {type(error).__name__}: {error}"
        ) from error
    check_tree(tree, kinds, path)
    return tree


def digest(tree: Any) -> str:
    """Return a digest of a copied tree: 16 hex digits. Equal trees have equal digests, in every process."""
    hasher = hashlib.sha256()

    def plain(value: Any) -> Any:
        if isinstance(value, Copied):
            import numpy as np

            array = np.asarray(value.value)
            hasher.update(array.tobytes())
            return [str(array.dtype), list(array.shape)]
        if isinstance(value, dict):
            return {"dict": [[plain(key), plain(item)] for key, item in value.items()]}
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        return repr(value) if isinstance(value, (bytes, float)) else value

    hasher.update(json.dumps(plain(tree)).encode())
    return hasher.hexdigest()[:16]
