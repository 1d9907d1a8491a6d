"""Files of ``torch.save``, looked at before PyTorch reads them: `check`.

PyTorch's own restricted reader (``torch.load(weights_only=True)``) is not enough for a file that somebody else may have
written: before 2.6 it unpickled old formats without restriction (CVE-2025-32434), versions up to 2.6 at least return
memory behind a tensor's bytes where the pickle names more numbers than there are, and it inflates what is compressed.
So a file has to be what ``torch.save`` writes, and nothing else:

    a zip archive of stored files, all below one folder, with nothing before, between or behind that a reader may take
    for something else:

    data.pkl                a pickle, in which each storage is the persistent id
                            ``("storage", type, key, location, number of elements)``
    data/<key>              the bytes of that storage
    byteorder, version, .format_version, .storage_alignment, .data/serialization_id

What the pickle names is compared with what may be called without harm. Anything else is `NeedsCodeError`: it can be
read only by running what the file says.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from supervisor_core.checkpoint.pickles import Call, Global, Keys, Persistent, SharedValuesError, add_keys, decode

MAX_PICKLE_BYTES = 64 << 20
MAX_RECORDS = 1_000_000
MAX_DIMENSIONS = 64

_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_ENTRY = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_ENCRYPTED = 1
_OTHERS = frozenset({"byteorder", "version", ".format_version", ".storage_alignment", ".data/serialization_id"})
_STORAGE = re.compile(r"data/(\d{1,10})")

ReadAt = Callable[[int, int], bytes]
"""Returns bytes of a file from an offset; fewer only where it ends."""


class NeedsCodeError(Exception):
    """A pickle can be read only by running code that it names.

    Args:
        name: the first such name, with its module.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Record(NamedTuple):
    """One stored file in an archive."""

    offset: int
    size: int


DTYPES = {
    "torch.float64": 8, "torch.float32": 4, "torch.float16": 2, "torch.bfloat16": 2, "torch.int64": 8,
    "torch.int32": 4, "torch.int16": 2, "torch.int8": 1, "torch.uint8": 1, "torch.bool": 1, "torch.complex64": 8,
    "torch.complex128": 16, "torch.uint16": 2, "torch.uint32": 4, "torch.uint64": 8, "torch.float8_e4m3fn": 1,
    "torch.float8_e5m2": 1, "torch.float8_e4m3fnuz": 1, "torch.float8_e5m2fnuz": 1, "torch.float8_e8m0fnu": 1,
}  # fmt: skip
"""Bytes of a number of each type."""

_STORAGE_DTYPES = {
    f"torch.{storage}Storage": f"torch.{dtype}"
    for storage, dtype in (
        ("Double", "float64"), ("Float", "float32"), ("Half", "float16"), ("BFloat16", "bfloat16"), ("Long", "int64"),
        ("Int", "int32"), ("Short", "int16"), ("Char", "int8"), ("Byte", "uint8"), ("Bool", "bool"),
        ("ComplexFloat", "complex64"), ("ComplexDouble", "complex128"),
    )
}  # fmt: skip
_WIDTHS = {"torch.storage.UntypedStorage": 1, **{name: DTYPES[dtype] for name, dtype in _STORAGE_DTYPES.items()}}
"""Bytes of an element."""

_NUMBER_TYPE = re.compile(r"[<>|=]?(?:[biuf]\d|[f]16|c8|c16|c32|[?bBhHiIlLqQefdgFD])")


def check(read_at: ReadAt, size: int, allowed: Collection[str] = ()) -> Any:
    """Return what the pickle in a file of ``torch.save`` says (see `pickles.decode`), if it can be read without harm.

    Args:
        size: its length in bytes.
        allowed: names of classes besides PyTorch's and Python's own that may be called, with any arguments.

    Raises:
        ValueError: if it is no such file, or its tensors do not lie within their bytes; says why.
        NeedsCodeError: if its pickle names anything else, or contains itself.
    """
    records = records_of(read_at, size)
    pickle = records.pop("data.pkl", None)
    if pickle is None or pickle.size > MAX_PICKLE_BYTES:
        raise ValueError(f"it has no data.pkl of at most {MAX_PICKLE_BYTES:,} bytes")
    storages: dict[str, int] = {}
    for name, record in records.items():
        if match := _STORAGE.fullmatch(name):
            storages[match[1]] = record.size
        elif name not in _OTHERS:
            raise ValueError(f"it has a record {name!r:.80}, which is none of torch.save's")
    rules = _PickleRules(storages, allowed)
    try:
        value = decode(read_at(pickle.offset, pickle.size), rules)
    except SharedValuesError as error:
        raise NeedsCodeError("a value that contains itself") from error
    rules.finish()
    return value


def records_of(read_at: ReadAt, size: int) -> dict[str, Record]:
    """Return the records of an archive by name, without the folder that they are all in.

    Raises:
        ValueError: if it is no archive that any reader reads alike.
    """
    start, end, count = _directory(read_at, size)
    data = read_at(start, end - start)
    found: dict[str, Record] = {}
    folders: set[str] = set()
    position = taken = 0
    for _ in range(count):
        if position + _ENTRY.size > len(data):
            raise ValueError("its directory ends early")
        entry = _ENTRY.unpack_from(data, position)
        _, _, _, flags, method, _, _, _, packed, length, name_length, extra_length, note_length, _, _, _, offset = entry
        position += _ENTRY.size
        raw = data[position : position + name_length]
        extra = data[position + name_length : position + name_length + extra_length]
        position += name_length + extra_length + note_length
        if entry[0] != b"PK\x01\x02" or method or flags & _ENCRYPTED or position > len(data):
            raise ValueError("a record is compressed or encrypted, or the directory is damaged")
        length, packed, offset = _wide(extra, length, packed, offset)
        local = read_at(offset, _LOCAL.size + len(raw))
        if length != packed or offset < taken or len(local) < _LOCAL.size + len(raw):
            raise ValueError("a record is compressed, or lies in another")
        header = _LOCAL.unpack_from(local)
        if header[0] != b"PK\x03\x04" or header[3] or header[9] != len(raw) or local[_LOCAL.size :] != raw:
            raise ValueError("a record is called otherwise in the directory")
        begin = offset + _LOCAL.size + header[9] + header[10]
        taken = begin + length
        if taken > start:
            raise ValueError("a record lies behind the end")
        called = raw.decode("utf-8", "replace")
        folder, _, name = called.partition("/")
        if not name:
            raise ValueError(
                f"{called!r:.80} is no file in a folder; expected a file of torch.save, not another archive"
            )
        if name in found:
            raise ValueError("two records have one name")
        folders.add(folder)
        found[name] = Record(begin, length)
    if position != len(data) or len(folders) != 1:
        raise ValueError("its records are not in one folder, or the directory is damaged")
    return found


def _directory(read_at: ReadAt, size: int) -> tuple[int, int, int]:
    """Return where an archive's directory begins and ends, and the number of its records."""
    tail = read_at(max(0, size - _END.size), _END.size)
    if len(tail) < _END.size or tail[:4] != b"PK\x05\x06":
        raise ValueError("it is no zip archive of torch.save")
    _, disk, first, here, count, length, start, note = _END.unpack(tail)
    end = size - _END.size
    locator = read_at(max(0, end - _LOCATOR.size), _LOCATOR.size)
    if locator[:4] == b"PK\x06\x07" and len(locator) == _LOCATOR.size:
        _, disk64, offset, disks = _LOCATOR.unpack(locator)
        wide = read_at(offset, _END64.size)
        if offset + _END64.size != end - _LOCATOR.size or len(wide) < _END64.size or wide[:4] != b"PK\x06\x06":
            raise ValueError("its end is damaged")
        *_, here64, count64, length64, start64 = _END64.unpack(wide)
        narrow = ((here, here64, 0xFFFF), (count, count64, 0xFFFF), (length, length64, 0xFFFFFFFF))
        for low, high, none in (*narrow, (start, start64, 0xFFFFFFFF)):
            if low not in (high, none):
                raise ValueError("its two ends differ")
        here, count, length, start, end = here64, count64, length64, start64, offset
        disk = disk or disk64 or disks != 1
    if disk or first or note or here != count or count > MAX_RECORDS or start + length != end:
        raise ValueError(f"its end is damaged, or it has more than {MAX_RECORDS:,} records")
    return start, end, count


def _wide(extra: bytes, *numbers: int) -> list[int]:
    """Return a record's numbers, those of 64 bits out of its extra field."""
    found = b""
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, position)
        if kind == 1:
            if found:
                raise ValueError("a record has two sizes")
            found = extra[position + 4 : position + 4 + length]
        position += 4 + length
    result = []
    for number in numbers:
        if number == 0xFFFFFFFF:
            if len(found) < 8:
                raise ValueError("the size of a record is missing")
            number, found = struct.unpack_from("<Q", found)[0], found[8:]
        result.append(number)
    return result


def tensor_of(value: Any) -> tuple[str, tuple[int, ...]] | None:
    """Return the dtype and the shape of a value that `check` has returned; None if it is no tensor."""
    if isinstance(value, Call) and value.name == "torch._utils._rebuild_parameter":
        value = value.arguments[0]
    if not isinstance(value, Call) or not value.name.startswith("torch._utils._rebuild_tensor_v"):
        return None
    storage, _, shape, _, _, _, *rest = value.arguments
    dtype = rest[0].name if value.name.endswith("v3") else _STORAGE_DTYPES.get(storage.identity[1].name, "")
    return dtype, sizes_of(shape)


class _PickleRules:
    """What a pickle of ``torch.save`` may name and call; called with each `Global`, `Persistent` and `Call`."""

    def __init__(self, storages: Mapping[str, int], allowed: Collection[str]) -> None:
        self._storages = storages
        self._allowed = allowed
        self._called: list[Call] = []

    def __call__(self, found: Global | Call | Persistent) -> None:
        if isinstance(found, Persistent):
            self._storage(found)
            return
        found.name = name = re.sub(r"^__builtin__\.", "builtins.", found.name)
        if isinstance(found, Global):
            is_harmless = name in _NAMES or name in self._allowed
        elif name in _CALLS:
            is_harmless = _CALLS[name](found)
            self._called.append(found)
        else:
            is_harmless = name in self._allowed
        if not is_harmless:
            raise NeedsCodeError(name)

    def finish(self) -> None:
        """Check what is known at the end only: the states and items of what was called."""
        for call in self._called:
            is_filled = call.state is not None or bool(call.items)
            if call.name in _OF_NUMPY:
                state = () if call.state is None else call.state
                is_harmless = not call.items and type(state) is tuple and all(map(_is_numpy_s, state))
            elif call.name in _TENSORS and any(map(_is_filled_dict, call.arguments)):
                raise NeedsCodeError("collections.OrderedDict")
            else:
                is_harmless = not is_filled or call.name in _CONTAINERS
            if not is_harmless:
                raise NeedsCodeError(call.name)

    def _storage(self, found: Persistent) -> None:
        identity = found.identity
        if type(identity) is not tuple or len(identity) != 5 or identity[0] != "storage":
            raise ValueError("its pickle refers to what is no storage")
        _, kind, key, location, count = identity
        if not isinstance(kind, Global) or type(key) is not str or type(location) is not str or type(count) is not int:
            raise ValueError("its pickle refers to what is no storage")
        if kind.name not in _WIDTHS:
            raise NeedsCodeError(kind.name)
        if self._storages.get(key) != count * _WIDTHS[kind.name]:
            raise ValueError(f"the storage {key!r:.20} has not the {count:,} elements that the pickle says")


def _tensor(call: Call) -> bool:
    """A tensor: within its storage, and no larger than that."""
    storage, offset, shape, strides, requires_grad, hooks, *rest = call.arguments
    if not isinstance(storage, Persistent) or type(requires_grad) is not bool:
        raise ValueError("a tensor is not as torch.save writes it")
    width = total = _WIDTHS[storage.identity[1].name]
    total *= storage.identity[4]
    if call.name.endswith("v3"):
        width = DTYPES[rest.pop(0).name]
    shape, strides = sizes_of(shape), sizes_of(strides)
    if type(offset) is not int or offset < 0 or len(shape) != len(strides):
        raise ValueError("a tensor is not as torch.save writes it")
    if len(shape) > MAX_DIMENSIONS or math.prod(filter(None, shape)) >= 1 << 60:
        raise ValueError("a tensor's shape is too large")
    count, last = 1, offset
    for length, stride in zip(shape, strides, strict=True):
        count *= length
        last += (length - 1) * stride
    if count and (last + 1) * width > total:
        raise ValueError("a tensor does not lie within its bytes")
    _require_no_hooks(hooks)
    # One that shares its bytes with itself: a copy would take any amount of memory.
    return count * width <= total and not any(rest)


def _parameter(call: Call) -> bool:
    data, requires_grad, hooks = call.arguments
    if not isinstance(data, Call) or type(requires_grad) is not bool:
        raise ValueError("a parameter is not as torch.save writes it")
    _require_no_hooks(hooks)
    return True


def _require_no_hooks(hooks: Any) -> None:
    """Do nothing for hooks that may be none: whether their dict stays empty is known at the end."""
    if hooks is not None and (not isinstance(hooks, Call) or hooks.name != "collections.OrderedDict"):
        raise ValueError("a tensor has hooks")


def _is_filled_dict(value: Any) -> bool:
    is_dict = isinstance(value, Call) and value.name == "collections.OrderedDict"
    return is_dict and (value.state is not None or bool(value.items))


def _plain(call: Call) -> bool:
    """A value of plain arguments: texts, numbers, bytes, and flat lists and tuples of them."""
    for argument in call.arguments:
        items = argument if isinstance(argument, (list, tuple, set)) else (argument,)
        if not all(item is None or isinstance(item, (bool, int, float, str, bytes)) for item in items):
            return False
        if call.name == "builtins.set":
            add_keys(call, items, Keys())
    return True


def _octets(call: Call) -> bool:
    """``bytearray`` of bytes; of a number, or a tensor of one, it would be as long as that."""
    return (len(call.arguments) <= 1 and all(map(_is_octets, call.arguments))) or _is_text(call.arguments)


def _encoded(call: Call) -> bool:
    return len(call.arguments) == 2 and type(call.arguments[0]) is str and call.arguments[1] == "latin1"


def _container(call: Call) -> bool:
    return all(isinstance(item, Global) and item.name in _VALUES for item in call.arguments)


def _counter(call: Call) -> bool:
    return len(call.arguments) <= 1 and all(type(item) is dict for item in call.arguments)


def _number_type(call: Call) -> bool:
    """A type of numbers of numpy's. Its state has its byte order and nothing else."""
    name = call.arguments[0] if call.arguments else None
    return type(name) is str and _NUMBER_TYPE.fullmatch(name) is not None


def _array(call: Call) -> bool:
    kind, shape, letter = call.arguments
    return isinstance(kind, Global) and shape == (0,) and _is_octets(letter)


def _scalar(call: Call) -> bool:
    kind, value = call.arguments
    return isinstance(kind, Call) and kind.name == "numpy.dtype" and _is_octets(value)


def _is_octets(value: Any) -> bool:
    """Return whether a value is bytes, as any protocol writes them."""
    return isinstance(value, bytes) or (isinstance(value, Call) and value.name == "_codecs.encode")


def _is_text(arguments: tuple[Any, ...]) -> bool:
    """Return whether arguments are a text and its encoding, as protocol 2 writes a ``bytearray``."""
    return len(arguments) == 2 and type(arguments[0]) is str and arguments[1] in ("latin-1", "latin1")


def _is_numpy_s(value: Any) -> bool:
    """Return whether a part of an array's state, or of its type's, is as numpy writes it: neither fields nor
    objects."""
    if isinstance(value, Call):
        return value.name in ("numpy.dtype", "_codecs.encode")
    plain = value if type(value) is tuple else (value,)
    return all(item is None or isinstance(item, (bool, int, str, bytes)) for item in plain)


def sizes_of(value: Any) -> tuple[int, ...]:
    """Return the shape, or the strides, of a tensor in a value that `check` has returned.

    Raises:
        ValueError: if it is none.
    """
    if isinstance(value, Call) and value.name == "torch.Size":
        (value,) = value.arguments
    if type(value) is not tuple or not all(type(item) is int and 0 <= item < 1 << 62 for item in value):
        raise ValueError("a tensor's shape is none")
    return value


_CALLS: Mapping[str, Callable[[Call], bool]] = {
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "torch.Size": _plain,
    "torch.device": _plain,
    "builtins.set": _plain,
    "builtins.complex": _plain,
    "builtins.bytearray": _octets,
    "_codecs.encode": _encoded,
    "collections.OrderedDict": _container,
    "collections.defaultdict": _container,
    "collections.Counter": _counter,
    **{f"numpy.{core}.multiarray._reconstruct": _array for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray.scalar": _scalar for core in ("core", "_core")},
    "numpy.dtype": _number_type,
}
"""What may be called -> whether it does no harm with its arguments."""

_TENSORS = frozenset(name for name, rule in _CALLS.items() if rule in (_tensor, _parameter))
_CONTAINERS = frozenset(name for name, rule in _CALLS.items() if rule in (_container, _counter))
_OF_NUMPY = frozenset(name for name, rule in _CALLS.items() if rule in (_array, _number_type))
"""Those that may have a state, besides the containers, which may have items."""

_VALUES = frozenset(f"builtins.{name}" for name in ("bool", "dict", "float", "int", "list", "set", "str", "tuple"))
_VALUES |= {"numpy.ndarray"}
"""Classes that may be values, but not be called."""

_NAMES = frozenset({*_CALLS, *_VALUES, *_WIDTHS, *DTYPES})
"""What may be named at all."""

HARMLESS = tuple(sorted({*_CALLS, *_VALUES}))
"""The names of all that may be called, or be values."""
