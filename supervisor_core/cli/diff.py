"""``tb-supervisor diff``: what changed from one checkpoint to another."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn

from supervisor_core.checkpoint.names import last_part
from supervisor_core.checkpoint.values import CheckpointValues, Difference, TensorChange, difference_of, percent
from supervisor_core.cli import WrongInput, paths
from supervisor_core.cli.text import SHOWN_ROWS, Output, bold, listed, literal, progress_bar
from supervisor_core.errors import CheckpointError, DamagedCheckpointError
from supervisor_core.run.words import UNKNOWN

SCHEMA_VERSION = 1

_ORDER = ("added", "missing", "reshaped", "changed", "frozen", "unknown")
_CHECKPOINT = re.compile(r"(?:model\.)?(?:ckpt|checkpoint)-\d+(?:\.\d+)?|(?P<prefix>.+)\.index")
_MOST_NAMED = 5


@click.command(
    short_help="Show what changed from one checkpoint to another.",
    epilog="\b\nExamples:\n  tb-supervisor diff /runs/mnist/model.ckpt-100 /runs/mnist/model.ckpt-200\n"
    "  tb-supervisor diff --json /runs/gpt/checkpoints/ckpt-100 /runs/gpt/checkpoints/ckpt-200",
)
@click.argument("before", metavar="CKPT", shell_complete=paths)
@click.argument("after", metavar="CKPT", shell_complete=paths)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.pass_context
def diff(context: click.Context, before: str, after: str, as_json: bool) -> None:
    """Compare the tensors of two checkpoints: relative change, what is frozen, added, missing, NaN.

    CKPT is TensorFlow's prefix, the directory of a sealed checkpoint, a folder of torch.distributed.checkpoint, or a
    file: .safetensors, or of torch.save. Pickles are not loaded. JAX's arrays need the package tensorstore.

    Exit status: 0 if both could be read; 1 if one is damaged, or its values cannot be read here; 2 if one is no
    checkpoint, or they have no tensor of one name.
    """
    columns = (TextColumn("reading values"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    try:
        with progress_bar(*columns) as update:
            found, values = difference_of(
                before, after, on_progress=lambda done, total: update(completed=done, total=total)
            )
    except DamagedCheckpointError as error:
        hint = next(filter(None, map(_of_a_run, (before, after))), None)
        if hint is not None:
            raise WrongInput(hint) from error
        click.echo(f"Error: {error}", err=True)
        context.exit(1)
    except CheckpointError as error:
        raise WrongInput(next(filter(None, map(_of_a_run, (before, after))), str(error))) from error
    if as_json:
        click.echo(json.dumps(_as_json(found, values), indent=2))
    else:
        _print(found, values)


def _of_a_run(path: str) -> str | None:
    """Return the error for the directory of a run, which names its checkpoints; None for anything else."""
    found = []
    for directory in (path, os.path.join(path, "checkpoints")):
        try:
            names = os.listdir(directory)
        except OSError:
            continue
        for name in names:
            if match := _CHECKPOINT.fullmatch(name):
                found.append(os.path.join(directory, match["prefix"] or name))
    if not found:
        return None
    found.sort(key=lambda name: (len(name), name), reverse=True)
    more = f" and {len(found) - _MOST_NAMED:,} more" if len(found) > _MOST_NAMED else ""
    return f"{path} is a directory with checkpoints; name one of them: {', '.join(found[:_MOST_NAMED])}{more}."


def _as_json(found: Difference, values: CheckpointValues) -> dict[str, Any]:
    return {
        "v": SCHEMA_VERSION,
        "before": found.before,
        "after": found.after,
        "summary": found.summary,
        "relative": found.relative,
        "counts": dict(found.counts),
        "values": values.summary,
        "tensors": [asdict(change) for change in found.tensors],
    }


def _print(found: Difference, values: CheckpointValues) -> None:
    console = Output(highlight=False)
    console.print(bold(f"{found.before} -> {found.after}"), soft_wrap=True)
    console.print(literal(found.summary), soft_wrap=True)
    text = literal(f"values of {last_part(found.after)}: {values.summary}")
    console.print(f"[bold red]{text}[/bold red]" if values.has_nan else text, soft_wrap=True)
    changes = sorted(found.tensors, key=_place)
    console.print(*listed(changes[:SHOWN_ROWS], _COLUMNS), sep="\n")
    if len(changes) > SHOWN_ROWS:
        console.print(f"... and {len(changes) - SHOWN_ROWS:,} tensors more; --json has all", soft_wrap=True)


def _place(change: TensorChange) -> tuple[int, float]:
    """Return where a tensor stands: those that changed most come first, and before them those whose change is not
    known."""
    return _ORDER.index(change.kind), -math.inf if change.relative is None else -change.relative


def _pair(pair: tuple[str, str]) -> str:
    """Return what was before and what is after; once where it is the same."""
    return literal(pair[0] if pair[0] == pair[1] else f"{pair[0]}->{pair[1]}")


def _number(number: float | int | None) -> str:
    return UNKNOWN if number is None else f"{number:.4g}"


def _shape(shape: tuple[int, ...] | None) -> str:
    return UNKNOWN if shape is None else "x".join(map(str, shape)) or "scalar"


def _odd(change: TensorChange) -> str:
    return _pair((f"{change.not_finite[0] or 0:,}", f"{change.not_finite[1] or 0:,}")) if any(change.not_finite) else ""


_COLUMNS: Mapping[str, Any] = {
    "tensor": lambda change: literal(change.name),
    "is": lambda change: change.kind,
    "change": lambda change: percent(change.relative),
    "norm": lambda change: _pair((_number(change.norms[0]), _number(change.norms[1]))),
    "largest": lambda change: _number(change.largest),
    "NaN or infinite": _odd,
    "dtype": lambda change: _pair((change.dtypes[0] or UNKNOWN, change.dtypes[1] or UNKNOWN)),
    "shape": lambda change: _pair((_shape(change.shapes[0]), _shape(change.shapes[1]))),
}
"""Heading -> what makes a cell, as markup."""
