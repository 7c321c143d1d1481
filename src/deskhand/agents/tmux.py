"""What tmux knows: which window this is, and which agents are in the others.

Panes are addressed by their ids, never by a window's name, which tmux would match by its beginning or as a number.
Imports next to nothing, for the same reason as paths.py: subprocess alone would double the time of a hook.
"""

import os

from deskhand import environment

PERSON = "person"
"""Under this name the person writes; no agent is called so, whatever its window says."""

_FORMAT = "#{pane_id} #{window_id} #{n:window_name} #{window_name} #{pane_current_path}"


def readable(name: str) -> str:
    """The name with the code of each character that shows nothing or poses as another: it
    passes for no other name."""
    if name.isascii() and name.isprintable():
        return name
    from deskhand.unseen import spell_out_line, spell_out_posing

    return spell_out_line(spell_out_posing(name))


def is_persons(name: str) -> bool:
    """Whether a reader would take the name for the person's."""
    if name.isascii():
        return name.strip().lower().replace("0", "o") == PERSON
    from deskhand.unseen import reads_as

    return reads_as(name) == PERSON


class TmuxFailed(Exception):
    """tmux could not answer; the message is what it said."""


class NoWindow(TmuxFailed):
    """The pane is there, but its window has no name by which anybody could write to it."""


class Window:
    """A window with its name, the address no other window has, and its panes' ids and folders."""

    def __init__(self, name: str, address: str, panes: list[tuple[str, str]]) -> None:
        self.name = name
        self.address = address
        self.panes = panes


def socket_of(variable: str) -> str:
    """Where the server listens of which TMUX speaks; "" where it says no place."""
    place, _, _ = variable.partition(",")
    return place if place.startswith("/") else ""


def command(*arguments: str, server: str = "") -> list[str]:
    """How that server is asked, or the one of this process. In UTF-8 whatever the locale: names are compared."""
    place = ["-S", server] if server else []
    return ["tmux", "-u", *place, *arguments]


def run(*arguments: str, server: str = "") -> str:
    """What `tmux ARGUMENTS` prints."""
    output = os.pipe()  # no other child inherits it
    errors = os.pipe()
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, output[1], 1),
        (os.POSIX_SPAWN_DUP2, errors[1], 2),
    ]
    try:
        child = os.posix_spawnp(
            "tmux",
            command(*arguments, server=server),
            environment.variables(),
            file_actions=actions,
        )
    except FileNotFoundError as error:
        raise TmuxFailed("tmux is not installed") from error
    finally:
        os.close(output[1])
        os.close(errors[1])
    with open(output[0], "rb") as said, open(errors[0], "rb") as complained:
        text, complaint = said.read(), complained.read()
    _, status = os.waitpid(child, 0)
    if status:
        reason = complaint.decode("utf-8", "replace").strip()
        raise TmuxFailed(reason or f"exit status {os.waitstatus_to_exitcode(status)}")
    return text.decode("utf-8", "replace")


def is_pane(pane: str) -> bool:
    return pane.startswith("%") and pane[1:].isascii() and pane[1:].isdigit()


def windows(pane: str, server: str = "") -> list[Window]:
    """The windows of the session to which the pane belongs, in tmux's order."""
    found: dict[int, tuple[str, list[tuple[str, str]]]] = {}
    listed = run("list-panes", "-s", "-t", pane, "-F", _FORMAT, server=server)
    for line in listed.splitlines():
        pane_id, window, length, rest = line.split(" ", 3)
        name, path = _cut(rest, int(length))
        found.setdefault(int(window[1:]), (readable(name.strip()), []))[1].append(
            (pane_id, path)
        )
    addresses = distinct({number: name for number, (name, _) in found.items()})
    return [
        Window(name, addresses[number], panes)
        for number, (name, panes) in found.items()
        if name
    ]


def distinct(names: dict[int, str]) -> dict[int, str]:
    """An address for each window: its name, and for a younger one of the same name `name~2`, `name~3`, …"""
    taken: set[str] = set(names.values())
    first: set[str] = set()
    addresses = {}
    for number in sorted(names):
        name = address = names[number]
        count = 2
        while (name in first or is_persons(name)) and address in taken:
            address = f"{name}~{count}"
            count += 1
        first.add(name)
        taken.add(address)
        addresses[number] = address
    return addresses


def all_panes() -> list[dict[str, str]]:
    """Every pane of the server with what is known of it; `address` is its window's among
    its session's windows."""
    fields = ["pane_id", "session_id", "window_id", "closed"]
    texts = ["window_name", "pane_current_command", "pane_current_path"]
    # Keys sent to a pane in copy mode, without input or in step with others would not go where they should.
    closed = "#{pane_in_mode}#{pane_dead}#{pane_input_off}#{pane_synchronized}"
    shown = [closed if field == "closed" else f"#{{{field}}}" for field in fields]
    lengths = [f"#{{n:{field}}}" for field in texts]
    form = " ".join([*shown, *lengths, *(f"#{{{field}}}" for field in texts)])
    panes = []
    for line in run("list-panes", "-a", "-F", form).splitlines():
        *first, one, two, _, rest = line.split(" ", 7)
        name, command, path = _cut(rest, int(one), int(two))
        panes.append(
            dict(
                zip(
                    fields + texts,
                    [*first, readable(name.strip()), command, path],
                    strict=True,
                )
            )
        )
    for session in {pane["session_id"] for pane in panes}:
        members = [pane for pane in panes if pane["session_id"] == session]
        addresses = distinct(
            {int(pane["window_id"][1:]): pane["window_name"] for pane in members}
        )
        for pane in members:
            pane["address"] = addresses[int(pane["window_id"][1:])]
    return panes


def _cut(text: str, *lengths: int) -> list[str]:
    """Split fields joined by blanks, which may contain blanks, by their lengths in bytes;
    the last is the rest."""
    rest = text.encode()
    fields = []
    for length in lengths:
        fields.append(rest[:length].decode("utf-8", "replace"))
        rest = rest[length + 1 :]
    return [*fields, rest.decode("utf-8", "replace")]


def own(found: list[Window], pane: str) -> Window | None:
    return next(
        (window for window in found if pane in (pane_id for pane_id, _ in window.panes)),
        None,
    )
