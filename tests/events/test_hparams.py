"""Hyperparameters, as TensorBoard's own HParams plugin writes them."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import plugin_data_pb2

from supervisor_core.base.wire import DamagedError
from supervisor_core.events.hparams import MAX_HPARAMS, MAX_NAME_CHARS, MAX_TEXT_CHARS, HParam, hparams_of
from supervisor_core.events.payload import decode
from supervisor_core.events.reader import EventsFileReader
from tests.cases import each
from tests.events.hparams_writer import event, framed, library, started
from tests.events.record_writer import HEAD, NAME, scalar, write

NAMES = st.text(st.characters(exclude_categories=("Cs",)), max_size=MAX_NAME_CHARS)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=MAX_TEXT_CHARS)
VALUES = st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS


@given(hparams=st.dictionaries(NAMES, VALUES, min_size=1, max_size=8), with_tensor=st.booleans())
def test_they_are_what_the_plugin_wrote(hparams: dict[str, HParam], *, with_tensor: bool) -> None:
    """Texts, numbers and truth values, each of its own type."""
    data = event(hparams, with_tensor=with_tensor)
    found = decode(data, 0, len(data))
    assert found.hparams == hparams
    assert {name: type(value) for name, value in (found.hparams or {}).items()} == {
        name: type(value) for name, value in hparams.items()
    }
    assert not found.scalars


@given(data=st.binary(max_size=64), cut=st.integers(0, 200))
def test_damaged_content_is_refused(data: bytes, cut: int) -> None:
    """Whatever the bytes: hyperparameters within the bounds, or the fault that a damaged event has."""
    whole = started({"lr": 0.1, "name": "adam"}).value[0].metadata.plugin_data.content
    for content in (data, whole[:cut] + data + whole[cut:]):
        try:
            found = hparams_of(content, 0, len(content))
        except DamagedError:
            continue
        assert all(len(name) <= MAX_NAME_CHARS for name in found)


def test_what_is_no_number_is_a_text() -> None:
    """JSON could not hold it otherwise; null and lists are no hyperparameters."""
    data = plugin_data_pb2.HParamsPluginData()
    values = data.session_start_info.hparams
    values["a"].number_value = float("nan")
    values["b"].number_value = float("-inf")
    values["c"].null_value = 0
    values["d"].list_value.values.add().number_value = 1.0
    content = data.SerializeToString()
    assert hparams_of(content, 0, len(content)) == {"a": "nan", "b": "-inf"}


def test_their_number_and_length_are_bounded() -> None:
    """The first by name are kept, long texts are cut; content that is far too long is not read."""
    data = event({f"p{number:04}": "x" * 1000 for number in range(1000)})
    found = decode(data, 0, len(data)).hparams or {}
    assert list(found) == [f"p{number:04}" for number in range(MAX_HPARAMS)]
    assert set(found.values()) == {"x" * (MAX_TEXT_CHARS - 3) + "..."}
    data = event({"a": "x" * (2 << 20)})
    assert decode(data, 0, len(data)).hparams is None


def test_other_data_of_the_plugin_are_none() -> None:
    """An experiment, a session's end, and whatever has another tag or another plugin's name."""
    end = Summary.FromString(library().session_end_pb("STATUS_SUCCESS").SerializeToString())
    ended = Event(summary=end).SerializeToString()
    assert decode(ended, 0, len(ended)).hparams is None
    for tag, plugin in (("_hparams_/session_start_info/x", "hparams"), ("_hparams_/session_start_info", "text")):
        found = started({"lr": 0.1})
        found.value[0].tag, found.value[0].metadata.plugin_data.plugin_name = tag, plugin
        data = Event(summary=found).SerializeToString()
        assert decode(data, 0, len(data)).hparams is None


@each("pad", [0, 200_000])
def test_a_file_gives_the_last(tmp_path: Path, pad: int) -> None:
    """Wherever among scalars they stand, however long the record is, and in whatever pieces the file is read."""
    path = str(tmp_path / NAME)
    scalars = [scalar(step) for step in range(200)]
    first = {"lr": 0.1, **{f"p{number}": "x" * 1000 for number in range(pad // 1000)}}
    write(path, HEAD, framed(first), *scalars, framed({"lr": 0.2}), *scalars)
    chunk = EventsFileReader(path).read()
    assert chunk is not None
    assert chunk.hparams == {"lr": 0.2}
    assert len(chunk.scalars["loss"]) == 400
    reader = EventsFileReader(path)
    found = []
    while (piece := reader.read(1000)) is not None:
        found.append(piece.hparams)
    assert [each["lr"] for each in found if each is not None] == [0.1, 0.2]
