"""`annotation`: the text of an alert as a template of Prometheus, in which no name can be more than a name.

Whoever makes a directory, or writes an events file, chooses labels. An alert's text ends in a chat, a page or a mail,
and people paste commands from there. So every label is shown by the template ``shown``, and a command has ``quoted``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_MARKUP = [rf"\x{ord(character):02x}" for character in "<>&@[]`"]
"""What begins a mention, a link or an element in Slack, Mattermost, Telegram, Markdown or HTML; as escapes."""
_UNUSUAL = rf"\pC\p{{Zl}}\p{{Zp}}\\{''.join(_MARKUP)}"
"""Control and invisible characters, the backslash, and markup; within brackets of an expression."""

_TEMPLATES = {
    # %q has control, bidirectional and invisible characters as escapes.
    "shown": '{{ printf "%q" . | reReplaceAll `^"|"$` ``'
    + "".join(f" | reReplaceAll `{code}` `{code}`" for code in _MARKUP)
    + " }}",
    # For a shell: bare, in quotes, or byte by byte.
    "quoted": r"{{ if match `^[\w%+=:,./-]+$` . }}{{ . }}"
    rf"{{{{ else if match `^[^{_UNUSUAL}]+$` . }}}}'{{{{ . | reReplaceAll `'` `'" + '"\'"' + r"'` }}'"
    r"{{ else }}$'{{ printf `%x` . | reReplaceAll `..` `\x$0` }}'{{ end }}",
}

_SHOWN = re.compile(r"\{\{\s*((?:\$labels\.\w+|\.(?=[\s}]))[^{}]*?)\s*\}\}")
"""An action whose output is a label."""
_INSPECT = (
    '{{ with printf `supervisor_run_info{run=%[1]q,logdir!=""} and on (job, instance) supervisor_exporter_build_info '
    'or supervisor_run_info{run=%[1]q,logdir!=""}` $labels.run | query }} Command: tb-supervisor inspect --run=. -- '
    '{{ template "quoted" . | first | label "logdir" }}{{ end }}'
)
"""The command that shows a run, by its directory: as the exporter has it, else as the training does. Nothing where
neither is reported."""
_SELECTOR, _SELECTED = "{run=%[1]q", re.compile(r"\$labels\.run(?=\s*\|\s*query\b)")
"""Where a text asks for series of the run, and for which run."""


def annotation(text: str, by: Sequence[str]) -> str:
    """Return an annotation as Prometheus gets it.

    Args:
        text: as in ``rules.yaml``: its labels are bare, and ``${inspect}`` is the command that shows the run.
        by: the labels that identify a run, ``run`` first.

    Example:
        >>> annotation("{{ $labels.run }} is lost.", ("run",)).partition("{{ end }}")[2]
        '{{ template "shown" $labels.run }} is lost.'
    """
    text = _SHOWN.sub(r'{{ template "shown" \1 }}', text).replace("${inspect}", _INSPECT)
    selector = ",".join(f"{label}=%[{number}]q" for number, label in enumerate(by, 1))
    text = text.replace(_SELECTOR, f"{{{selector}")
    text = _SELECTED.sub(" ".join(f"$labels.{label}" for label in by), text)
    used = (name for name in _TEMPLATES if f'template "{name}"' in text)
    return "".join(f'{{{{ define "{name}" }}}}{_TEMPLATES[name]}{{{{ end }}}}' for name in used) + text
