"""A training is killed, resumes, is stopped, loses no saved step and finishes; another one hangs and is brought back.

python -m examples.demo [--once] [--logdir DIR] [--steps N] [--framework NAME]

With a framework: a training of that one's example, whose resume is exact; nothing hangs.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from examples.demo.acts import Play
from examples.demo.board import serve_board, tab_of
from examples.demo.display import Display
from examples.demo.frameworks import FRAMEWORKS, STEPS_PER_EPOCH, Framework
from examples.demo.hanging import HangingTraining
from examples.demo.inspection import show_run, write_report
from examples.demo.story import HANG_AT, HANG_STEPS, checks
from examples.demo.summary import (
    show_checks,
    show_figures,
    show_inspection,
    show_report,
    show_tab,
    show_verdict,
)

ROOT = Path(__file__).parents[2]
RUN_NAME, HANG_NAME = "digits", "hang"
STEPS = 2500
SAVE_SECS = 0.5
EVAL_SECS = 2.0
PIPE_WIDTH = 120


def main() -> int:
    """Run the demo; return 0 if all checks passed, 1 if not, 130 or 143 if interrupted."""
    args = _Parser.read()
    signal.signal(signal.SIGTERM, _leave)  # so that the training is not left behind
    console = Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)
    run, hang = args.logdir / RUN_NAME, (args.logdir / HANG_NAME).resolve()
    what = "Handwritten digits" if args.framework is None else f"Handwritten digits with {args.framework.title}"
    console.print(f"{what}, {args.steps} steps; files in {args.logdir}", highlight=False, soft_wrap=True)
    try:
        with contextlib.ExitStack() as stack:
            hanging = None
            if args.framework is None:
                hanging = HangingTraining(
                    [*_command(hang, HANG_STEPS), "--hang-at", str(HANG_AT)],
                    run=hang,
                    output=args.logdir / f"{HANG_NAME}.txt",
                    directory=ROOT,
                )
                stack.enter_context(hanging)
            display = stack.enter_context(Display(console, args.steps))
            play = Play(
                _command(run, args.steps, args.framework),
                run=run.resolve(),
                outputs=args.logdir,
                directory=ROOT,
                steps=args.steps,
                show=display,
                framework=args.framework,
                hanging=hanging,
            )
            story = play.perform()
        results = checks(story)
        show_checks(console, results)
        show_figures(console, story, args.logdir, run)
        show_inspection(console, show_run(args.logdir, RUN_NAME, console.width))
        status = show_verdict(console, story, results)
        page = _page_of(args.framework)
        show_report(console, page, write_report(args.logdir, RUN_NAME, page))
        if args.once or not console.is_terminal:
            return status
        return serve_board(args.logdir, lambda url: show_tab(console, tab_of(url, RUN_NAME))) or status
    except (KeyboardInterrupt, _Terminated) as interruption:
        console.print(f"\nInterrupted. The files are in {args.logdir}", highlight=False, soft_wrap=True)
        return 128 + (signal.SIGTERM if isinstance(interruption, _Terminated) else signal.SIGINT)


def _page_of(framework: Framework | None) -> Path:
    """Return where the run's page goes: below what make builds."""
    return Path("build", "demo" if framework is None else f"demo-{framework.name}", "report.html")


def _command(run: Path, steps: int, framework: Framework | None = None) -> list[str]:
    if framework is not None:
        start = [sys.executable, "-m", framework.program, "--logdir", str(run.resolve())]
        return [*start, *framework.options(steps)]
    options = {
        "--logdir": str(run.resolve()),
        "--steps": str(steps),
        "--save-secs": str(SAVE_SECS),
        "--eval-secs": str(EVAL_SECS),
        "--metrics-address": "127.0.0.1:0",
    }
    return [sys.executable, "-m", "examples.digits", *(word for option in options.items() for word in option)]


class _Parser(argparse.ArgumentParser):
    """Reads the arguments; what cannot be used ends the process with status 2 and one line."""

    @classmethod
    def read(cls) -> argparse.Namespace:
        parser = cls(prog="demo", description=(__doc__ or "").split("\n")[0])
        parser.add_argument("--once", action="store_true", help="exit after the checks; do not start TensorBoard")
        parser.add_argument("--logdir", type=Path, help="an empty or new directory (demo-logs/<date>-<time>)")
        parser.add_argument("--steps", type=int, help=f"number of steps ({STEPS}; of a framework, what takes as long)")
        parser.add_argument("--framework", choices=FRAMEWORKS, help="show the example of this one, not of TensorFlow 1")
        args = parser.parse_args()
        if args.steps is not None and args.steps < 1:
            parser.error(f"--steps is {args.steps}; expected a whole number from 1")
        args.framework = FRAMEWORKS.get(args.framework)
        parser.see_what_is_installed(args.framework)
        if args.framework is None:
            args.steps = args.steps or STEPS
        else:
            epochs = args.framework.epochs if args.steps is None else -(-args.steps // STEPS_PER_EPOCH)
            args.steps = epochs * STEPS_PER_EPOCH
        try:
            args.logdir = _new_directory() if args.logdir is None else _empty_directory(args.logdir)
        except OSError as error:
            parser.error(f"the directory cannot be used: {error}")
        return args

    def see_what_is_installed(self, framework: Framework | None) -> None:
        modules = ("tensorflow", "sklearn") if framework is None else framework.modules
        remedy = "make demo" if framework is None else f'make demo ARGS="--framework {framework.name}"'
        for module in modules:
            if importlib.util.find_spec(module) is None:
                package = {"sklearn": "scikit-learn", "orbax": "orbax-checkpoint"}.get(module, module)
                self.error(f"{package} is missing; install it with: {remedy}")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def _empty_directory(directory: Path) -> Path:
    if directory.exists() and not directory.is_dir():
        raise NotADirectoryError(f"{directory} is a file")
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise FileExistsError(f"{directory} is not empty; the demo shows a training from its first step")
    return directory


def _new_directory() -> Path:
    name = datetime.now().strftime("%Y%m%d-%H%M%S")
    for suffix in ("", *(f"-{number}" for number in range(2, 100))):
        directory = Path("demo-logs", name + suffix)
        try:
            directory.mkdir(parents=True)
        except FileExistsError:  # another demo began in this second
            continue
        return directory
    raise FileExistsError(f"demo-logs holds too many directories named {name}")


class _Terminated(BaseException):  # no error, like KeyboardInterrupt
    """SIGTERM has come."""


def _leave(signum: int, frame: object) -> NoReturn:
    raise _Terminated


if __name__ == "__main__":
    sys.exit(main())
