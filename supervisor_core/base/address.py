"""Where metrics are served: ``host:port`` as text, and as a host and a port for a socket."""

from __future__ import annotations

import re

from supervisor_core.base.errors import OptionsError

DEFAULT_HOST = "127.0.0.1"
"""What an empty host means: metrics contain paths and host names, and need no password."""

_ADDRESS = re.compile(r"(?:\[(?P<bracketed>[^\[\]\s]+)\]|(?P<host>[^\[\]:/\s]*)):(?P<port>[0-9]{1,5})")


def parse_address(address: str, named: str = "The metrics address") -> tuple[str, int]:
    """Return the host and the port that an address names.

    Args:
        address: ``"host:port"``, ``":port"`` (which means 127.0.0.1), or ``"[::1]:port"`` for IPv6. Port 0 asks for
            any free port. ``"0.0.0.0:port"`` and ``"[::]:port"`` listen on every interface.
        named: what the error calls it.

    Example:
        >>> parse_address(":9464"), parse_address("[::1]:0")
        (('127.0.0.1', 9464), ('::1', 0))

    Raises:
        OptionsError: if it is none of these; the text says what came, what was expected, and what to write instead.
    """
    match = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if match is None or int(match["port"]) > 65535:
        raise OptionsError(
            f"{named} is {address!r}; expected 'host:port', ':port' (127.0.0.1) or '[::1]:port', "
            f"the port from 0 (any free one) to 65535.{_remedy(address)}"
        )
    return match["bracketed"] or match["host"] or DEFAULT_HOST, int(match["port"])


def format_address(host: str, port: int) -> str:
    """Return ``host:port``, an IPv6 host in brackets: the inverse of `parse_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _remedy(address: object) -> str:
    if not isinstance(address, str):
        return " Write it as a string."
    if re.fullmatch(r"[0-9]{1,5}", address):
        return f" Write ':{address}'."
    if "://" in address:
        return " Leave out the scheme and the path."
    ipv6 = re.fullmatch(r"([0-9a-fA-F:]*:[0-9a-fA-F:]*):([0-9]{1,5})", address)
    if ipv6 is not None:
        return f" Write an IPv6 host in brackets: '[{ipv6[1]}]:{ipv6[2]}'."
    if ":" not in address:
        return " Add the port, for example ':9464'."
    return ""
