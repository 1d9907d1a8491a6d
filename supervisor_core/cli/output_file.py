"""Where a command writes a file that it was given the name of."""

from __future__ import annotations

import os

from supervisor_core.cli import WrongInput
from supervisor_core.systems import user_id


def checked_target(target: str) -> str:
    """Return where a file is written: through links, but no other user's, where it is a file already, or nothing
    yet.

    Args:
        target: as it was typed.

    Raises:
        WrongInput: if no file can be there.
    """
    path = os.path.realpath(target)
    if os.path.islink(target) and os.lstat(target).st_uid not in (0, user_id()):
        raise WrongInput(f"{target} is another user's link to {path}: give that, or the name of another file.")
    if os.path.lexists(path) and not os.path.isfile(path):
        what = "a directory" if os.path.isdir(path) else "no file"
        raise WrongInput(f"{target} is {what}; expected the name of a file to write.")
    if not os.path.basename(target):
        raise WrongInput(f"{target} is the name of a directory; expected the name of a file to write.")
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        raise WrongInput(f"The directory {os.path.dirname(target)} does not exist; create it first.")
    return path
