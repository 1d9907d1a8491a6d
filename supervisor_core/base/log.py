"""What the log and the terminal show of texts that others wrote: names, paths, errors.

A terminal obeys control characters, and a line break in a name forges a line of the log. So all that goes to the logger
``supervisor_core`` passes `make_plain`, and what the commands print passes `printable`. A command that people are to
give is written by `command_line`: they paste it into a shell.
"""

from __future__ import annotations

import html
import logging
import numbers
import re
import traceback
from typing import Any

LOGGER = "supervisor_core"

_UNPRINTABLE = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Unicode categories that move the cursor, reverse the text after them, or cannot be seen."""
INVISIBLE = (
    (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x2800, 0x2800), (0x3164, 0x3164), (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
"""First and last code points of what else leaves no mark, so that two names look like one: Unicode's
``Default_Ignorable_Code_Point``, and the empty Braille pattern."""
_INVISIBLE = re.compile("[{}]".format("".join(f"{chr(first)}-{chr(last)}" for first, last in INVISIBLE)))


def printable(text: str) -> str:
    """Return text with control, bidirectional and invisible characters as escapes, on one line.

    Example:
        >>> printable("a\\x1b[31mb")
        'a\\\\x1b[31mb'
    """
    if text.isascii() and text.isprintable():
        return text
    import unicodedata

    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in _UNPRINTABLE or _INVISIBLE.match(character)
        else character
        for character in text
    )


def html_text(text: str) -> str:
    """Return text of any origin for a page of HTML: `printable`, and no markup.

    Example:
        >>> html_text("<b>\\x07")
        '&lt;b&gt;\\\\x07'
    """
    return html.escape(printable(text))


def policy_digest(text: str) -> str:
    """Return by what a page's Content-Security-Policy allows an element with this text: ``sha256-...``."""
    import base64  # here, since few processes write pages
    import hashlib

    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def printable_lines(text: str) -> str:
    """Return text whose own line breaks mean something (an error's, a traceback): likewise, with each line after the
    first indented, so that none looks like a line of the log. What was made so once stays as it is.

    Example:
        >>> printable_lines("no such file\\n2026-01-01 INFO all is well\\x07")
        'no such file\\n    2026-01-01 INFO all is well\\\\x07'
    """
    first, *others = text.split("\n")
    shown = [printable(line) for line in others]
    return "\n".join([printable(first), *(line if line[:1] in ("", " ") else f"    {line}" for line in shown)])


def command_line(*words: str) -> str:
    """Return a command as one line that a shell takes as these words, whatever they are.

    A word with a backslash, or with what `printable` shows as escapes, is written as ``$'...'`` with the bytes of these
    characters as escapes. bash, zsh and ksh take it as it was; any other shell as another word, never as a command.
    A name may begin with a dash: write ``--run=NAME``, and ``--`` before arguments.

    Example:
        >>> command_line("rm", "--", "my run", "a\\x1b")
        "rm -- 'my run' $'a\\\\x1b'"
    """
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    if "\\" not in word and printable(word) == word:
        import shlex

        return shlex.quote(word)
    return f"$'{''.join(map(_escaped, word))}'"


def _escaped(character: str) -> str:
    if character not in "'\\" and printable(character) == character:
        return character
    try:
        data = character.encode("utf-8", "surrogateescape")  # of a name that is no text: the byte itself
    except UnicodeEncodeError:
        data = character.encode("utf-8", "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in data)


def errors_within(error: BaseException) -> list[BaseException]:
    """Return an error and those that led to it, the innermost first, 30 at most: the causes, and what libraries keep in
    `reason` and in arguments."""
    stack, found = [error], list[BaseException]()
    while stack and len(found) < 30:
        current = stack.pop()
        if not any(current is each for each in found):
            found.append(current)
            inner = [current.__cause__, current.__context__, getattr(current, "reason", None), *current.args]
            stack += [item for item in inner if isinstance(item, BaseException)]
    return found[::-1]


def answer_text(status: int) -> str:
    """Return what a web server answers, by its status.

    Example:
        >>> answer_text(503), answer_text(799)
        ('it answers 503 (Service Unavailable)', 'it answers 799')
    """
    from http import HTTPStatus

    known = f" ({HTTPStatus(status).phrase})" if status in HTTPStatus._value2member_map_ else ""
    return f"it answers {status}{known}"


def error_text(error: BaseException) -> str:
    """Return an error for people: of one of the system the file, if it names one, and the reason.

    Example:
        >>> error_text(OSError(28, "No space left on device", "/runs/a"))
        '/runs/a: No space left on device'
    """
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def visible_level(logger: logging.Logger) -> int:
    """Return the level at which a program's log shows a line that is no warning: INFO where the program has asked for
    that, else WARNING, which Python prints where no logging was configured."""
    return logging.INFO if logger.isEnabledFor(logging.INFO) else logging.WARNING


def make_plain() -> None:
    """Let the logger ``supervisor_core`` show what is in its messages as text; once is enough."""
    logger = logging.getLogger(LOGGER)
    if not any(isinstance(found, _PlainText) for found in logger.filters):
        logger.addFilter(_PlainText())


class _PlainText(logging.Filter):
    """Lets every record through, with its arguments and its traceback made plain. The message itself is ours."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(_plain, record.args))
        elif record.args:
            record.args = {name: _plain(value) for name, value in record.args.items()}
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            lines = "".join(traceback.format_exception(*record.exc_info))
            record.exc_text = printable_lines(lines.rstrip("\n"))
        return True


def _plain(argument: Any) -> Any:
    if argument is None or isinstance(argument, numbers.Number):
        return argument
    return printable(argument) if isinstance(argument, str) else _Plain(argument)


class _Plain:
    """An argument of a message, made plain when it is shown."""

    def __init__(self, argument: Any) -> None:
        self._argument = argument

    def __str__(self) -> str:
        shown = str(self._argument)
        return printable_lines(shown) if isinstance(self._argument, BaseException) else printable(shown)

    def __repr__(self) -> str:
        return printable(repr(self._argument))
