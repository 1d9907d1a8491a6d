"""`RankSaver`: the checkpoints of one rank's session: rank 0 chooses and seals, all write what is their own."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from supervisor_core.checkpoint.manifest import read_manifest
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.checkpoint.sealed_store import Sealed
from supervisor_core.errors import CheckpointError, SupervisorError
from supervisor_core.training.ranks_state import RanksState
from supervisor_core.training.saver import Saver


class Refusal(NamedTuple):
    """What rank 0 announces where it cannot begin."""

    text: str


def expect(announced: Any) -> Any:
    """Return what rank 0 has announced.

    Raises:
        CheckpointError: if it cannot begin.
    """
    if isinstance(announced, Refusal):
        raise CheckpointError(f"Rank 0 cannot begin: {announced.text}")
    return announced


class RankSaver(Saver):
    """Reads the checkpoint that rank 0 has chosen, on all ranks; saves on rank 0."""

    _state: RanksState

    def collect(self, step: int, *, is_saved: bool) -> None:
        """Collect what is each rank's, and have each rank write its shards; called by all ranks at the same step.

        Raises:
            RanksError: if another rank has ended.
        """
        started = self._clock.monotonic()
        if self._state.shards:
            self._write_shards(step, is_saved and not self._is_on_disk(step))
        self._state.collect()
        self._state.blocked_secs = self._clock.monotonic() - started

    def _write_shards(self, step: int, is_saved: bool) -> None:
        state, ranks = self._state, self._state.ranks
        if ranks.is_chief and is_saved:
            try:
                state.staging = self._store.stage(step)
            except (OSError, SupervisorError) as error:
                state.failure = error  # for `capture`
        staging = ranks.announce(state.staging)
        if staging is None:
            return
        found: dict[str, Any] = {}
        text = None
        try:
            for part in state.shards:
                found.update(part.split())
        except Exception as error:  # the others wait for this
            text = f"{type(error).__name__}: {error}"
        for rank, other in enumerate(ranks.exchange(text)):
            if other is not None:
                state.failure = CheckpointError(f"Rank {rank} has a state that cannot be saved: {other}")
        if state.failure is None:
            try:
                state.write_shards(found, staging)
            except OSError as error:
                state.failure = error

    def release(self) -> None:
        """Let go what no save has taken."""
        state = self._state
        state.release()
        staging, state.staging = state.staging, None
        if staging is not None:
            self._store.discard(staging)

    def read(self, start_over: bool) -> Any:
        """See `Saver.read`.

        Raises:
            CheckpointError: where rank 0 has refused, or its checkpoint is not there.
        """
        ranks = self._state.ranks
        if not ranks.is_chief:
            return self._read_chosen(expect(ranks.announce()))
        sealed, tree = super().read(start_over)
        chosen = None if sealed is None else (os.path.basename(sealed.path), sealed.manifest.order)
        ranks.announce(chosen)
        return sealed, tree

    def _read_chosen(self, chosen: tuple[str, tuple[int, int, int]] | None) -> Any:
        if chosen is None:
            return None, ()
        path = os.path.join(self._store.directory, chosen[0])
        try:
            manifest = read_manifest(path)
            if manifest.order != chosen[1]:
                raise CheckpointError("it is another one")
            return Sealed(path=path, manifest=manifest), self._read_files(SealedFiles(path, manifest))
        except (OSError, SupervisorError) as error:
            raise CheckpointError(
                f"Rank {self._state.ranks.rank} cannot read {path}, which rank 0 resumes from: {error}. "
                "All ranks need the same logdir, on a file system that they share."
            ) from error
