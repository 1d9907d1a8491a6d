"""A plugin of mypy: no list, tuple, record or other object of Python's stands in a text as its ``repr``.

People read messages, and "the newest is ('/runs/a/ckpt-798', 798)" is for programs. What is put into an f-string, into
``str.format`` or after the text of a log call must be text, a number, a path, an error or a shape (``list[int]``).
Write ``", ".join(names)``, or a sentence. Where a repr is meant, the line has ``# type: ignore[repr-in-text]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mypy.errorcodes import ErrorCode
from mypy.nodes import CallExpr, Expression, MemberExpr, StrExpr
from mypy.plugin import MethodContext, Plugin
from mypy.types import Instance, TupleType, Type, TypedDictType, UnionType, get_proper_type

CODE = ErrorCode("repr-in-text", "A text has the repr of a container or a record", "General")
OWN = ("supervisor_core.", "tb_plugin.")
LOGS = frozenset(
    f"logging.{owner}.{name}"
    for owner in ("Logger", "LoggerAdapter")
    for name in ("debug", "info", "warning", "error", "exception", "critical", "log")
)
CONTAINERS = frozenset(
    ("builtins.list", "builtins.tuple", "builtins.dict", "builtins.set", "builtins.frozenset", "collections.deque")
) | {f"typing.{name}" for name in ("Iterable", "Collection", "Sequence", "Mapping", "AbstractSet", "Iterator")}
TEXTS = frozenset(("builtins.str", "builtins.bytes", "builtins.int", "builtins.float", "builtins.BaseException"))


def plugin(version: str) -> type[Plugin]:
    """Called by mypy."""
    return _Messages


class _Messages(Plugin):
    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        if fullname == "builtins.str.format":  # f-strings, too
            return _formatted
        return _logged if fullname in LOGS else None


def _formatted(context: MethodContext) -> Type:
    call = context.context
    text = call.callee.expr if isinstance(call, CallExpr) and isinstance(call.callee, MemberExpr) else None
    is_repr = isinstance(text, StrExpr) and "!r" in text.value
    for expression, found in _arguments(context, 0):
        _check(context, expression, found, is_repr)
    return context.default_return_type


def _logged(context: MethodContext) -> Type:
    for expression, found in _arguments(context, 1):
        _check(context, expression, found, is_repr=False)
    return context.default_return_type


def _arguments(context: MethodContext, first: int) -> Iterator[tuple[Expression, Type]]:
    """Yield the arguments that become text, of those that the text stands for."""
    names = context.callee_arg_names
    for index in range(first, len(context.args)):
        if names[index] not in ("exc_info", "stack_info", "stacklevel", "extra", "msg"):
            yield from zip(context.args[index], context.arg_types[index], strict=True)


def _check(context: MethodContext, expression: Expression, found: Type, is_repr: bool) -> None:
    if (what := _repr_of(found, is_repr)) is not None and _is_ours(context):
        context.api.fail(f"A text has the repr of {what}; write what people are to read", expression, code=CODE)


def _is_ours(context: MethodContext) -> bool:
    return any(part in ("supervisor_core", "tb_plugin") for part in context.api.path.replace("\\", "/").split("/"))


def _is_int(found: Type) -> bool:
    proper = get_proper_type(found)
    return isinstance(proper, Instance) and proper.type.fullname == "builtins.int"


def _repr_of(found: Type, is_repr: bool) -> str | None:
    """Return what a text would have the repr of; None where it has text that people read."""
    proper = get_proper_type(found)
    if isinstance(proper, UnionType):
        return next((what for item in proper.items if (what := _repr_of(item, is_repr)) is not None), None)
    if isinstance(proper, TupleType | TypedDictType):
        return str(proper)
    if not isinstance(proper, Instance):
        return None
    info = proper.type
    if info.fullname == "builtins.list" and _is_int(proper.args[0]):  # a shape, as everybody writes it
        return None
    bases = {base.fullname for base in info.mro}
    if bases & TEXTS and not info.is_enum:
        return None
    if bases & CONTAINERS or info.is_enum or (is_repr and "pathlib.PurePath" in bases):
        return str(proper)
    writes = (base for base in info.mro if base.fullname != "builtins.object")
    is_own = info.fullname.startswith(OWN)
    has_text = any("__str__" in base.names or "__repr__" in base.names for base in writes)
    return str(proper) if is_own and not has_text else None
