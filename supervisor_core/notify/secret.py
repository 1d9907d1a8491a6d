"""`Secret`: a text that is shown nowhere, as the URL of a service, which holds its token; `without_secrets`."""

from __future__ import annotations

import os
from typing import NoReturn

NOTIFY_VARIABLE, PING_VARIABLE = "SUPERVISOR_NOTIFY", "SUPERVISOR_PING"
"""Environment variables: the URLs of services, with white space between them; the URL that is requested."""


def without_secrets() -> dict[str, str]:
    """Return the environment of this process without URLs of services: for processes that need none."""
    return {name: value for name, value in os.environ.items() if name not in (NOTIFY_VARIABLE, PING_VARIABLE)}


class Secret:
    """A text of which neither `str` nor `repr` shows anything, and which cannot be pickled.

    Example:
        >>> url = Secret("ntfy://token")
        >>> print(url, [url])
        (secret) [(secret)]
        >>> url.reveal()
        'ntfy://token'
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text, for what cannot do without it."""
        return self._text

    def __repr__(self) -> str:
        return "(secret)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be pickled")
