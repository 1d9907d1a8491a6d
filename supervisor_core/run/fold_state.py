"""`packed`, `unpacked`: what was understood of a run, as bytes that a later process reads instead of its events files.

A state is MessagePack: the names of the classes and functions that occur, ``run.model:Session:8b1f3c02``, and a tree of
numbers, texts, lists and tables, in which an object is a list of its class's number and the values of its slots. Only
classes and functions of the packages `run` and `events` are allowed. An object is made by setting its slots: none of
its code runs.

What a slot means is known to the code that wrote it alone, so a state belongs to the `layout` of that code: any change
of the code that folds makes another layout. The bytes must come from a place to which only this user can write
(`fold_cache`).
"""

from __future__ import annotations

import hashlib
import platform
import re
import sys
import zlib
from array import array
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from msgspec import MsgspecError
from msgspec.msgpack import Decoder, Encoder, Ext

MOST_BYTES = 16 << 20
"""Of one state. One that is longer is not kept: it is read from the events files."""
MOST_DEPTH = 200

_NAME = re.compile(r"(run|events)\.[a-z_0-9]+:[A-Za-z_0-9]+:([0-9a-f]{8})?")
"""What may be in a state: of which module, what it is called there, and a digest of its slots: the files of a program
may be replaced while it runs, and then `layout` is of other code."""
_FOLDING = ("run", "events", "checkpoint/names.py", "process/stacks.py", "wire.py")
"""The code that decides what a state holds, and what it means."""

_PLAIN = frozenset((type(None), bool, int, float, str, bytes))
_LIST, _TUPLE, _TABLE, _SET, _FROZEN_SET, _COUNTER, _AGAIN, _PART, _NAMED, _OBJECTS, _DEQUE = range(11)
_FIRST_CLASS = 16
_TEXT, _ARRAY, _COLUMN = range(3)
"""Codes of MessagePack's extensions: a text that is not Unicode, an array of numbers, one of NumPy."""


class StateError(Exception):
    """Bytes that are no state, or an object that cannot be one; the text says why."""


@cache
def layout() -> str:
    """Return what states of this code are known by: a digest of its sources, 16 hexadecimal digits.

    Raises:
        StateError: if the sources cannot be read.
    """
    package = Path(__file__).parent.parent
    digest = hashlib.blake2b(f"{platform.python_version()} {sys.byteorder}".encode(), digest_size=8)
    try:
        for name in _FOLDING:
            path = package / name
            for source in sorted(path.glob("*.py")) if path.is_dir() else [path]:
                digest.update(source.name.encode() + b"\0" + source.read_bytes())
    except OSError as error:
        raise StateError(f"the program's own files cannot be read: {error}") from error
    return digest.hexdigest()


def packed(item: object) -> bytes:
    """Return an object as bytes.

    Args:
        item: plain values, records and folds, in lists, tuples, tables and sets. What occurs twice and can change is
            one object afterwards, too.

    Raises:
        StateError: if it holds anything else, or is longer than `MOST_BYTES`.

    Example:
        >>> unpacked(packed({"steps": (1, 2.5, None)}))
        {'steps': (1, 2.5, None)}
    """
    try:
        try:
            data = Encoder().encode(_Packer().state(item))
        except UnicodeEncodeError:  # names of files are not always Unicode
            data = Encoder().encode(_Packer(escaping=True).state(item))
    except (TypeError, ValueError, OverflowError, AttributeError, RecursionError, MsgspecError) as error:
        raise StateError(f"it cannot be kept: {error}") from error
    if len(data) > MOST_BYTES:
        raise StateError(f"it has {len(data):,} bytes; at most {MOST_BYTES:,} are kept")
    return data


def unpacked(data: bytes) -> Any:
    """Return the object of some bytes.

    Raises:
        StateError: if this code has not made them.
    """
    if len(data) > MOST_BYTES:
        raise StateError(f"it has {len(data):,} bytes; expected at most {MOST_BYTES:,}")
    try:
        names, tree = Decoder(ext_hook=_extension).decode(data)
        return _Unpacker(names).made(tree)
    except StateError:
        raise
    except Exception as error:  # whatever is wrong with them
        raise StateError(f"it is damaged: {error!r}") from error


class _Layout(NamedTuple):
    """How the objects of one class are taken apart and made."""

    cls: type
    make: Callable[..., Any]
    names: tuple[str, ...]
    """Its slots."""
    get: Callable[[Any], Any]
    """Returns the values of all, or of the one that it has."""
    setters: tuple[Callable[[Any, Any], None], ...]
    is_fixed: bool
    """Whether its objects never change: each may be made again where it occurs twice."""
    has_more: bool
    """Whether its objects have a table of attributes besides."""
    is_tuple: bool
    """Whether it is one, made of its values."""


@cache
def _named(name: str) -> _Layout | FunctionType:
    """Return what a name in a state stands for.

    Raises:
        StateError: if it is not allowed, or there is nothing of that name.
    """
    if not _NAME.fullmatch(name):
        raise StateError(f"it names {name!r}")
    module, within, slots = name.split(":")
    try:
        found = getattr(import_module(f"supervisor_core.{module}"), within)
    except (ImportError, AttributeError) as error:
        raise StateError(f"it names {name!r}, which there is not") from error
    if isinstance(found, FunctionType):
        return found
    if not isinstance(found, type):
        raise StateError(f"it names {name!r}, which is no class")
    if slots != _digest_of_slots(found):
        raise StateError(f"it names {name!r}, which has other slots here")
    return _layout_of(found)


def _digest_of_slots(cls: type) -> str:
    return f"{zlib.crc32(','.join(_layout_of(cls).names).encode()):08x}"


@cache
def _name_of(item: type | FunctionType) -> str | None:
    """Return the name of a class or a function in a state; None where it is not allowed."""
    name = f"{item.__module__.removeprefix('supervisor_core.')}:{item.__qualname__}"
    if item.__module__.startswith("supervisor_core."):
        name += ":" if isinstance(item, FunctionType) else f":{_digest_of_slots(item)}"
        return name if _NAME.fullmatch(name) else None
    return None


@cache
def _layout_of(cls: type) -> _Layout:
    names: list[str] = []
    setters = []
    for each in reversed(cls.__mro__):
        slots = each.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                names.append(name)
                setters.append(each.__dict__[name].__set__)
    is_tuple = issubclass(cls, tuple)
    parameters = getattr(cls, "__dataclass_params__", None)
    return _Layout(
        cls,
        partial(tuple.__new__ if is_tuple else cls.__new__, cls),
        tuple(names),
        attrgetter(*names) if names else lambda item: (),
        tuple(setters),
        bool(parameters is not None and parameters.frozen),
        cls.__dictoffset__ != 0,
        is_tuple,
    )


class _Packer:
    """Turns one object into plain values.

    Args:
        escaping: whether texts that are not Unicode are allowed, which takes longer.
    """

    def __init__(self, *, escaping: bool = False) -> None:
        self._escaping = escaping
        self._known: dict[int, int] = {}
        self._numbers: dict[type | FunctionType, int] = {}
        self._depth = 0

    def state(self, item: object) -> list[Any]:
        """Return an object with the names of the classes in it."""
        tree = self.packed(item)
        return [[_name_of(each) for each in self._numbers], tree]

    def _number(self, item: type | FunctionType) -> int:
        """Return the number of a class or a function in this state."""
        if (number := self._numbers.get(item)) is None:
            if _name_of(item) is None:
                raise TypeError(f"it holds a {item.__module__}.{item.__qualname__}")
            number = self._numbers[item] = len(self._numbers)
        return number

    def packed(self, item: Any) -> Any:
        kind = type(item)
        if kind in _PLAIN and not (self._escaping and kind is str):
            return item
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise RecursionError(f"it is nested deeper than {MOST_DEPTH}")
        found = self._taken_apart(kind, item)
        self._depth -= 1
        return found

    def _taken_apart(self, kind: type, item: Any) -> Any:
        packed = self.packed
        if kind in self._numbers:
            return self._object(_layout_of(kind), item)
        if kind is list or kind is tuple:
            return [_LIST if kind is list else _TUPLE, *map(packed, item)]
        if kind is dict or kind is Counter:
            code = _TABLE if kind is dict else _COUNTER
            return [code, *map(packed, item), *map(packed, item.values())]
        if kind is set or kind is frozenset:
            return [_SET if kind is set else _FROZEN_SET, *map(packed, item)]
        if kind is array:
            return Ext(_ARRAY, item.typecode.encode() + item.tobytes())
        if kind is np.ndarray:
            if item.dtype == object:
                return [_OBJECTS, *map(packed, item.tolist())]
            return Ext(_COLUMN, item.dtype.char.encode() + np.ascontiguousarray(item).tobytes())
        if kind is str:
            return Ext(_TEXT, item.encode("utf-8", "surrogatepass"))
        if kind is deque:
            return [_DEQUE, item.maxlen, *map(packed, item)]
        if kind is partial:
            return [_PART, packed(item.func), packed(item.args), packed(item.keywords)]
        if kind is FunctionType or kind is type:
            return [_NAMED, self._number(item)]
        if _name_of(kind) is not None:
            return self._object(_layout_of(kind), item)
        if isinstance(item, np.generic):
            return item.item()
        if isinstance(item, (int, float, str)):
            return next(plain(item) for plain in (int, float, str) if isinstance(item, plain))
        raise TypeError(f"it holds a {kind.__module__}.{kind.__qualname__}")

    def _object(self, layout: _Layout, item: Any) -> Any:
        number = _FIRST_CLASS + self._number(type(item))
        if layout.is_tuple:
            return [number, *map(self.packed, item)]
        if not layout.is_fixed:
            known = self._known.get(id(item))
            if known is not None:
                return [_AGAIN, known]
            self._known[id(item)] = len(self._known)
        values = layout.get(item)
        found = [number, *map(self.packed, values if len(layout.names) != 1 else (values,))]
        if layout.has_more:
            found.append(self.packed(item.__dict__))
        return found


class _Unpacker:
    """Makes one object of plain values."""

    def __init__(self, names: Sequence[str]) -> None:
        self._made: list[Any] = []
        self._named = tuple(map(_named, names))

    def made(self, node: Any) -> Any:
        if type(node) is not list:
            return node
        code = node[0]
        if code >= _FIRST_CLASS:
            layout = self._named[code - _FIRST_CLASS]
            if not isinstance(layout, _Layout):
                raise StateError("it has an object of a function")
            return self._object(layout, node)
        made = self.made
        if code == _AGAIN:
            return self._made[node[1]]
        if code == _NAMED:
            named = self._named[node[1]]
            return named.cls if isinstance(named, _Layout) else named
        items = [made(each) if type(each) is list else each for each in node[1:]]
        if code in (_TABLE, _COUNTER):
            half = len(items) // 2
            table = dict(zip(items[:half], items[half:], strict=True))
            return table if code == _TABLE else Counter(table)
        if code == _PART:
            function, arguments, keywords = items
            return partial(function, *arguments, **keywords)
        if code == _OBJECTS:
            return np.array(items, object)
        if code == _DEQUE:
            return deque(items[1:], maxlen=items[0])
        return items if code == _LIST else _COLLECTIONS[code](items)

    def _object(self, layout: _Layout, node: list[Any]) -> Any:
        made = self.made
        if layout.is_tuple:
            return layout.make([made(each) if type(each) is list else each for each in node[1:]])
        item = layout.make()
        if not layout.is_fixed:
            self._made.append(item)
        more = node.pop() if layout.has_more else None
        if len(node) != len(layout.setters) + 1:
            raise StateError(f"it has {len(node) - 1} values for the {len(layout.setters)} of {type(item).__name__}")
        for set_to, each in zip(layout.setters, node[1:], strict=True):
            set_to(item, made(each) if type(each) is list else each)
        if more is not None:
            item.__dict__.update(made(more))
        return item


_COLLECTIONS: dict[int, Callable[[Sequence[Any]], Any]] = {_TUPLE: tuple, _SET: set, _FROZEN_SET: frozenset}


def _extension(code: int, given: memoryview) -> Any:
    data = given.tobytes()  # of older versions of msgspec a slice of the view has another length
    if code == _TEXT:
        return str(data, "utf-8", "surrogatepass")
    kind = chr(data[0])
    if code == _ARRAY:
        found = array(kind)
        found.frombytes(data[1:])
        return found
    if code != _COLUMN:
        raise StateError(f"it has an extension {code}")
    return np.frombuffer(data[1:], kind).copy()
