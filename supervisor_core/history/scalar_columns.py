"""The columns of scalars, with what is known of each point: its running time, its session, whether it was kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from supervisor_core.events.chunk import Points
from supervisor_core.events.columns import Columns
from supervisor_core.history.formats import Coded, ColumnData
from supervisor_core.run.model import Run
from supervisor_core.run.run_json import plain
from supervisor_core.run.running_time import RunningTime
from supervisor_core.run.segments import Segments


class ScalarColumns:
    """Adds what a run's model knows of its points.

    Args:
        run: the model.
    """

    def __init__(self, run: Run) -> None:
        self.segments = Segments(run)
        """Which session wrote each point."""
        self._running = RunningTime(run.sessions)

    def of(self, path: str, points: Columns | Points) -> Mapping[str, ColumnData]:
        """Return the columns of some points of one file: step, wall_time, running_time, value, session, kept."""
        columns = Columns(points.steps, points.walls, points.values)
        return {
            "step": columns.steps,
            "wall_time": columns.walls,
            "running_time": self._running.of(columns.walls),
            "value": columns.values,
            "session": self._sessions(path, columns),
            "kept": self.segments.kept(path, columns),
        }

    def rows(self, run: str, path: str, by_tag: Mapping[str, Points]) -> Sequence[ColumnData]:
        """Return the columns of the table ``scalars`` for some points of one file.

        Args:
            run: the run's name.
            path: the file.
            by_tag: at least one tag's.
        """
        names = [plain(tag) for tag in by_tag]
        counts = [len(points) for points in by_tag.values()]
        whole = Points.joined(list(by_tag.values()))
        tags = Coded(np.repeat(np.arange(len(names), dtype=np.int32), counts), names)
        return [Coded(np.zeros(len(whole), np.int32), [plain(run)]), tags, *self.of(path, whole).values()]

    def _sessions(self, path: str, columns: Columns) -> Coded:
        owners = self.segments.owners(path, columns.walls)
        if len(owners) and (owners == owners[0]).all():
            found, places = owners[:1], np.zeros(len(owners), np.int64)
        else:
            found, places = np.unique(owners, return_inverse=True)
        codes: dict[str, int] = {}
        code_of = []
        for owner in found.tolist():
            session = self.segments.session(owner)
            code_of.append(-1 if session is None else codes.setdefault(plain(session), len(codes)))
        return Coded(np.array(code_of, np.int32)[places], list(codes))
