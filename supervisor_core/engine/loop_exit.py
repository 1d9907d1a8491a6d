"""`loop_exit`: how a ``for`` loop over a generator was left: by ``break`` or ``return``, or by an exception.

A generator sees the same `GeneratorExit` in both cases. But it is closed while the loop's frame is being left, so that
frame tells: the instruction that it is at, and the traceback that an exception has made of it. Checked on CPython 3.10
to 3.13.
"""

from __future__ import annotations

import gc
import opcode
import sys
from dataclasses import dataclass
from types import CodeType, FrameType, TracebackType

_LEAVES = {"POP_TOP", "POP_ITER", "FOR_ITER"}
"""Instructions at which a loop drops its iterator: ``break``, ``return``, the end of another iterator around it."""
_RAISES = {"RAISE_VARARGS", "RERAISE"}
_YIELDS = {"YIELD_VALUE", "RESUME"}
_GENERATOR = 0x20  # inspect.CO_GENERATOR


@dataclass(frozen=True)
class LoopExit:
    """How a loop was left."""

    is_by_error: bool | None
    """Whether an exception has left it; None where that cannot be known."""
    error: BaseException | None = None
    """The exception, where it can be found: from Python 3.12 on."""
    where: str | None = None
    """File, line and function of the innermost call that the exception has left."""
    call: tuple[int, CodeType] | None = None
    """The call that the loop is in."""

    @property
    def is_clean(self) -> bool:
        """Whether no exception has left it, as far as is known, or only ``sys.exit()`` with 0 or nothing: its last step
        counts, if it was made."""
        return not self.is_by_error or (isinstance(self.error, SystemExit) and self.error.code in (None, 0))


def loop_exit() -> LoopExit:
    """Return how the loop over a generator was left; called by the generator when it gets its `GeneratorExit`."""
    frame: FrameType | None = sys._getframe(1).f_back  # of whatever closes the generator
    while frame is not None and frame.f_code.co_flags & _GENERATOR and _instruction(frame) in _YIELDS:
        frame = frame.f_back  # of a generator around this one, which is closed, too
    if frame is None:
        return LoopExit(None)
    call, instruction = (id(frame), frame.f_code), _instruction(frame)
    raises = instruction in _RAISES
    traces = [
        item
        for item in gc.get_referrers(frame)
        if isinstance(item, TracebackType) and item.tb_frame is frame and (raises or item.tb_lasti == frame.f_lasti)
    ]
    if traces or raises:
        errors = [each for each in gc.get_referrers(*traces) if isinstance(each, BaseException)] if traces else []
        found = [each for each in errors if each.__traceback__ in traces]
        where = _innermost(traces[-1]) if traces else None
        return LoopExit(True, found[0] if len(found) == 1 and sys.version_info >= (3, 12) else None, where, call)
    return LoopExit(False if instruction in _LEAVES else None, call=call)


def _instruction(frame: FrameType) -> str:
    # Before 3.13 the frame of a call that has just returned may be at the call's inline cache.
    return opcode.opname[frame.f_code.co_code[frame.f_lasti]]


def _innermost(trace: TracebackType) -> str:
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return f"{code.co_filename}:{trace.tb_lineno} in {code.co_name}"
