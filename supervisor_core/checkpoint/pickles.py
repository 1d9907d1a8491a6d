"""`decode`: what a pickle says, without doing any of it.

Unpickling imports what a pickle names and calls it. Here names stay names (`Global`), and calls stay calls (`Call`):
nothing is imported, nothing runs, and whoever reads the result decides what it may mean. The opcodes are those of
protocols 0 to 5 that Python's pickler writes for data; any other one is an error.
"""

from __future__ import annotations

import pickletools
from collections import Counter
from collections.abc import Callable, Collection, Hashable
from typing import Any

MAX_OPCODES = 10_000_000
"""A model of 100,000 tensors has 2.5 million."""
MAX_DEPTH = 250
"""Of values in values: who walks over them calls itself for each level."""
MAX_MEMO = 1 << 32
"""The places in the memo: longer numbers could all have one hash."""
MAX_ALIKE = 100
"""Keys of a container that have one hash; in what a program writes there are two, -1 and -2."""
MAX_BITS = 64
"""Of an integer that is a key: longer ones can all have one hash."""
MAX_ITEMS = 1_000
"""Of a tuple that is a key: its hash is computed at each use."""

_SCALARS = (type(None), bool, int, float, str, bytes)
_VALUES = frozenset(
    (
        "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "UNICODE", "BINUNICODE",
        "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
    )
)  # fmt: skip
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": set, "EMPTY_TUPLE": tuple}
_TUPLES = {"TUPLE": None, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MAKERS = {"GLOBAL": 0, "STACK_GLOBAL": 2, "BINPERSID": 1, "REDUCE": 2, "NEWOBJ": 2}
_TAKEN: dict[str, int | None] = {
    **_TUPLES, **_MAKERS, "BUILD": 1, "APPEND": 1, "APPENDS": None, "SETITEM": 2, "SETITEMS": None, "ADDITEMS": None,
}  # fmt: skip
"""How many values an opcode takes from the stack; None for all above the mark."""
_KNOWN_HASHES = ("builtins.complex", "__builtin__.complex", "torch.Size", "datetime.timedelta")
"""What returns values whose hashes are no secret."""
_MARK = object()


class Keys:
    """The keys of some containers, of which few may have one hash.

    Python's hashes of numbers and of tuples are no secret: many keys with one hash make a dict take time in proportion
    to their square. Texts and bytes have hashes that differ from process to process.
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, Hashable]] = Counter()

    def add(self, container: object, key: Hashable, kind: Hashable = None) -> None:
        """Count a key.

        Args:
            container: what it is put into. key: a plain value, or a tuple of them.
            kind: what all keys have in common whose hashes are not known here; None for one whose hash is.

        Raises:
            ValueError: if it is a long integer or tuple, or too many keys of this container have its hash.
        """
        if kind is None:
            require_short(key)
            if isinstance(key, (str, bytes, int)) or key is None:
                return
            kind = hash(key)
        group = (id(container), kind)
        self._counts[group] += 1
        if self._counts[group] > MAX_ALIKE:
            raise ValueError(f"more than {MAX_ALIKE} keys of a dict have one hash")


def require_short(key: object) -> None:
    """Do nothing for a key whose hash takes little time, and is that of few others of its type.

    Raises:
        ValueError: for a long integer or tuple.
    """
    if isinstance(key, int) and key.bit_length() > MAX_BITS:
        raise ValueError(f"a key is an integer of more than {MAX_BITS} bits")
    if isinstance(key, tuple):
        if len(key) > MAX_ITEMS:
            raise ValueError(f"a key is a tuple of more than {MAX_ITEMS:,} items")
        for item in key:
            require_short(item)


class Global:
    """A function or class that a pickle names.

    Args:
        name: with its module, as ``collections.OrderedDict``.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Call:
    """An object that a pickle makes.

    Args:
        name: what it calls for that, with its module.
    """

    __slots__ = ("arguments", "items", "name", "state")

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name = name
        self.arguments = arguments
        self.state: Any = None
        """What its state is set to; None for nothing."""
        self.items: list[Any] = []
        """What is put into it, as into a list, or pairs as into a dict."""


class Persistent:
    """A reference to something outside the pickle.

    Args:
        identity: as the pickle has it.
    """

    __slots__ = ("identity",)

    def __init__(self, identity: Any) -> None:
        self.identity = identity


class SharedValuesError(ValueError):
    """A value contains itself, or values that are used so often that a walk over them has no end in practice."""


def decode(data: bytes | bytearray, made: Callable[[Global | Call | Persistent], None] = lambda found: None) -> Any:
    """Return the value in a pickle: None, booleans, numbers, texts, bytes, lists, tuples, dicts, sets, and the three
    classes above. Keys of dicts and elements of sets are plain values, flat tuples of them, or `Call`; few of one have
    one hash, see `Keys`.

    Args:
        made: called with each `Global`, `Persistent` and `Call` as it comes; of a `Call` state and items come later.

    Raises:
        SharedValuesError: if it has more than `MAX_OPCODES` values, each counted as often as it is used.
        ValueError: if it is no such pickle, or nested deeper than `MAX_DEPTH`; and whatever `made` raises.
    """
    try:
        value = _decode(bytes(data), made)
        _count_values(value, {}, 0)
        return value
    except (AttributeError, IndexError, KeyError, TypeError) as error:  # the stack has not what an opcode takes
        raise ValueError("it is no pickle of data") from error


def _decode(data: bytes, made: Callable[[Global | Call | Persistent], None]) -> Any:
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    keys = Keys()

    argument: Any
    for number, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if number >= MAX_OPCODES:
            raise ValueError(f"it has more than {MAX_OPCODES:,} opcodes")
        name = opcode.name
        items = _popped(stack, _TAKEN[name]) if name in _TAKEN else []
        if name in _VALUES:
            stack.append(argument)
        elif name in ("BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE"):
            index = len(memo) if argument is None else int(argument)
            if not 0 <= index < MAX_MEMO:
                raise ValueError("a place in its memo is no small number")
            memo[index] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(memo[int(argument)])
        elif name == "MARK":
            stack.append(_MARK)
        elif name in _TUPLES:
            stack.append(tuple(items))
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _MAKERS:
            found = _make(name, items, argument)
            made(found)
            stack.append(found)
        elif name in _FILLERS:
            _FILLERS[name](stack[-1], items, keys)
        elif name == "STOP":
            (value,) = stack
            return value
        elif name not in ("PROTO", "FRAME"):
            raise ValueError(f"it has the opcode {name}")
    raise ValueError("it has no end")


def _popped(stack: list[Any], count: int | None) -> list[Any]:
    """Return the last values, which are no longer on the stack; for None all above the last mark, which goes, too."""
    if count == 0:
        return []
    if count is None:
        try:
            start = next(index for index in range(len(stack) - 1, -1, -1) if stack[index] is _MARK)
        except StopIteration:
            raise ValueError("a mark is missing") from None
        items = stack[start + 1 :]
        del stack[start:]
        return items
    items = stack[-count:]
    if len(items) < count or any(item is _MARK for item in items):
        raise ValueError("its stack is too short")
    del stack[-count:]
    return items


def _make(name: str, items: list[Any], argument: Any) -> Global | Call | Persistent:
    """Return what an opcode puts on the stack that is no plain value."""
    if name == "BINPERSID":
        return Persistent(items[0])
    if name == "GLOBAL":
        return Global(".".join(argument.split(" ", 1)))
    first, second = items
    if name == "STACK_GLOBAL":
        if type(first) is not str or type(second) is not str:
            raise ValueError("a name is no text")
        return Global(f"{first}.{second}")
    if type(first) is not Global or type(second) is not tuple:
        raise ValueError("it calls what is no function")
    return Call(first.name, second)


def _count_values(value: Any, counts: dict[int, int], depth: int) -> int:
    """Return the number of values in a value, and in those in it; each place of one counts."""
    inner: list[Any] | tuple[Any, ...]
    if isinstance(value, (list, tuple)):
        inner = value
    elif isinstance(value, dict):
        inner = [*value, *value.values()]
    elif isinstance(value, set):
        inner = [*value]
    elif isinstance(value, Call):
        inner = [*value.arguments, value.state, *value.items]
    elif isinstance(value, Persistent):
        inner = [value.identity]
    else:
        return 1
    known = counts.get(id(value))
    if known is not None:
        if not known:
            raise SharedValuesError("a value in it contains itself")
        return known
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    counts[id(value)] = 0
    count = 1
    for item in inner:
        count += _count_values(item, counts, depth + 1)
        if count > MAX_OPCODES:
            raise SharedValuesError(f"it has more than {MAX_OPCODES:,} values, since some are used again and again")
    counts[id(value)] = count
    return count


def _append(target: Any, items: list[Any], _: Keys) -> None:
    into = target.items if type(target) is Call else target
    if type(into) is not list:
        raise ValueError("it appends to what is no list")
    into.extend(items)


def _set_items(target: Any, items: list[Any], keys: Keys) -> None:
    if len(items) % 2:
        raise ValueError("a key has no value")
    add_keys(target, items[::2], keys)
    pairs = zip(items[::2], items[1::2], strict=True)
    if type(target) is dict:
        target.update(pairs)
    elif type(target) is Call:
        target.items.extend(pairs)
    else:
        raise ValueError("it sets items of what is no dict")


def _add_items(target: Any, items: list[Any], keys: Keys) -> None:
    if type(target) is not set:
        raise ValueError("it adds to what is no set")
    add_keys(target, items, keys)
    target.update(items)


def _set_state(target: Any, items: list[Any], _: Keys) -> None:
    if type(target) is not Call:
        raise ValueError("it sets the state of what has none")
    (target.state,) = items


_FILLERS = {
    "APPEND": _append, "APPENDS": _append, "SETITEM": _set_items, "SETITEMS": _set_items, "ADDITEMS": _add_items,
    "BUILD": _set_state,
}  # fmt: skip
"""What puts values into the one that is on the stack."""


def add_keys(target: object, items: Collection[Any], keys: Keys) -> None:
    """Do nothing for values that may be keys of a container. Tuples of tuples take time without bound to be compared,
    if one of them is used again and again; so do many keys with one hash.

    Args:
        target: the container. items: the keys that are put into it.
        keys: those that were put into it before.

    Raises:
        ValueError: for others.
    """
    for item in items:
        parts = item if type(item) is tuple else (item,)
        if not all(isinstance(part, (*_SCALARS, Call)) for part in parts):
            raise ValueError("a key is no plain value")
        calls = [part for part in parts if isinstance(part, Call)]
        keys.add(target, item, "calls" if any(map(_has_known_hash, calls)) else None)


def _has_known_hash(call: Call) -> bool:
    """Return whether what is called may return values of one hash, as many as somebody likes."""
    if call.name.endswith(".multiarray.scalar"):  # numbers of at most 64 bits; complex ones have twice as many
        kind = call.arguments[0] if call.arguments else None
        letter = kind.arguments[0] if isinstance(kind, Call) and kind.arguments else ""
        return not isinstance(letter, str) or letter.startswith(("c", "g"))
    return call.name in _KNOWN_HASHES
