"""Addresses as people write them."""

from __future__ import annotations

import pytest

from supervisor_core.base.address import format_address, parse_address
from supervisor_core.base.errors import OptionsError
from tests.cases import each


@each(
    "address, expected",
    [
        ("127.0.0.1:9464", ("127.0.0.1", 9464)),
        ("trainer-0.local:0", ("trainer-0.local", 0)),
        (":65535", ("127.0.0.1", 65535)),
        ("[::1]:9464", ("::1", 9464)),
    ],
)
def test_an_address_is_read(address: str, expected: tuple[str, int]) -> None:
    """Host and port are read as written; an empty host means 127.0.0.1 and never all interfaces."""
    assert parse_address(address) == expected


@each(
    "address, remedy",
    [
        ("9464", "Write ':9464'."),
        ("localhost", "Add the port, for example ':9464'."),
        ("http://localhost:9464/metrics", "Leave out the scheme and the path."),
        ("::1:9464", "Write an IPv6 host in brackets: '[::1]:9464'."),
        ("localhost:http", ""),
        ("localhost:-1", ""),
        (9464, "Write it as a string."),
    ],
)
def test_what_is_no_address_is_refused(address: object, remedy: str) -> None:
    """The error says what came, what was expected, and, where it can be guessed, what to write instead."""
    with pytest.raises(OptionsError) as refused:
        parse_address(address)  # type: ignore[arg-type]
    assert str(refused.value).startswith(f"The metrics address is {address!r}; expected 'host:port'")
    assert remedy in str(refused.value)


@each("address", ["127.0.0.1:9464", "[::1]:9464"])
def test_what_is_shown_can_be_written(address: str) -> None:
    """An address that was shown reads back as itself."""
    assert format_address(*parse_address(address)) == address
