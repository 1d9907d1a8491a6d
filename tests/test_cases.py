"""A table of cases that is one test."""

from __future__ import annotations

import pytest

from tests.cases import each


def test_a_case_that_fails_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The case that fails is printed last, and those after it are not called."""
    called = []

    @each("number, text", [(1, "a"), (2, "b"), (3, "c")])
    def table(number: int, text: str) -> None:
        called.append(text)
        assert number != 2

    with pytest.raises(AssertionError):
        table()
    assert called == ["a", "b"]
    assert capsys.readouterr().out.splitlines()[-1] == "case: number=2, text='b'"
