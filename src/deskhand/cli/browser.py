"""Opens an address in the person's browser without putting it on a command line, which every user can read."""

import webbrowser
from html import escape
from pathlib import Path

from deskhand.files import write_atomically

_PAGE = """\
<!doctype html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={0}">
<a href="{0}">Go on</a>
"""


def open_privately(home: Path, address: str) -> None:
    """Let a browser follow a file that only the person can read."""
    file = home / ".open.html"
    write_atomically(file, _PAGE.format(escape(address)).encode())
    webbrowser.open(file.as_uri())
