"""`deskhand mcp NAME` as a pipe to the running desk: nothing is loaded, so that it is there in a moment.

    desk   deskhand, its version, the names of its options
    pipe   which server, its scopes, the working folder, and what of these options its environment sets;
           along with it the descriptors of its stdin and stdout, where a program talks to it through both
    desk   joined; joined and handed; or refused and why

Joined: then the bytes of MCP go both ways. Joined and handed: the desk itself reads and writes at these descriptors.
The pipe only holds the connection open, and the desk says `ended` when the client has closed its input. In both cases
whoever closes the connection has ended. A greeting is fields with a NUL behind each, and a line end behind them all.
"""

import _socket  # `socket` takes as long to import as an empty Python takes to start
import _thread
import os
import stat
import sys
import time

from deskhand import __version__, environment

TYPE_CHECKING = False  # typing's own would cost as much as all the rest
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SOCKET = "desk.sock"
GUARDED = "/run/deskhand/desk.sock"
RECORD = "/opt/deskhand/guarded.json"
"""Says of which home the guarded desk was made."""
HANDED = "handed"
UNAVAILABLE = 7
"""The exit code of a pipe whose desk has ended."""
_LONGEST_PATH = 100
_PATIENCE = 10.0
_TRIES = 500
_PAUSE = 0.02
_CHUNK = 1 << 16


class NotJoined(Exception):
    """Why this process has to serve by itself."""


def join(arguments: "Sequence[str]") -> int | None:
    """Be the pipe of `deskhand mcp ARGUMENTS` until one side ends; None where this process
    has to serve by itself."""
    wanted = _read(arguments)
    if wanted is None:
        return None
    try:
        door, is_handed = _enter(*wanted, _find_ends())
    except NotJoined as why:
        _say(f"serving by itself: {why}")
        return None
    _say("joined the running desk")
    if is_handed:
        return _hold(door)
    return _pump(door)


def pack(*fields: str) -> bytes:
    return (
        b"".join(field.encode("utf-8", "surrogateescape") + b"\0" for field in fields)
        + b"\n"
    )


def unpack(greeting: bytes) -> list[str]:
    return [
        field.decode("utf-8", "surrogateescape")
        for field in greeting.removesuffix(b"\0\n").split(b"\0")
    ]


def reachable(place: str) -> str:
    """A name of the place that is short enough for a socket, as long as this process runs."""
    if len(os.fsencode(place)) <= _LONGEST_PATH or not os.path.isdir("/proc/self/fd"):
        return place
    folder = os.open(os.path.dirname(place), os.O_RDONLY | os.O_DIRECTORY)
    return f"/proc/self/fd/{folder}/{os.path.basename(place)}"


def _read(arguments: "Sequence[str]") -> "tuple[str, list[str]] | None":
    """The server and its scopes; None for everything that the whole command line has to say something about."""
    rest = list(arguments)
    if not rest or rest[0].startswith("-"):
        return None
    server = rest.pop(0)
    scopes = []
    while len(rest) > 1 and rest[0] == "--scope":
        scopes.append(rest[1])
        del rest[:2]
    if rest == ["--alone"]:
        _say("serving by itself: --alone")
    if rest:
        return None
    return server, scopes


def enter(server: str, scopes: "list[str]") -> _socket.socket:
    """A connection to that server of the running desk."""
    door, _ = _enter(server, scopes, ())
    return door


def _enter(
    server: str, scopes: "list[str]", ends: "Sequence[int]"
) -> "tuple[_socket.socket, bool]":
    """The connection, and whether the desk has taken what it was handed."""
    if server == "tasks" and os.path.exists(".env"):
        raise NotJoined("the .env file here may set options")
    door = _connect()
    try:
        named, version, *options = unpack(_read_greeting(door))
        if named != "deskhand" or version != __version__:
            raise NotJoined(
                f"the running desk has version {version}, this is {__version__}"
            )
        wanted = pack(server, " ".join(scopes), os.getcwd(), *_set_options(options))
        _send_with(door, wanted, ends)
        answer, *more = unpack(_read_greeting(door))
        if answer != "joined":
            raise NotJoined("".join(more))
    except (OSError, ValueError) as error:
        raise NotJoined(f"the running desk did not answer: {error}") from None
    door.settimeout(None)
    return door, HANDED in more


def _find_ends() -> "Sequence[int]":
    """Stdin and stdout, where both are what a program gives to one that it starts: the
    desk looks for itself, too."""
    try:
        modes = [os.fstat(file).st_mode for file in (0, 1)]
    except OSError:
        return ()
    if all(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) for mode in modes):
        return (0, 1)
    return ()


def _send_with(door: _socket.socket, data: bytes, files: "Sequence[int]") -> None:
    along = []
    if files:
        packed = b"".join(file.to_bytes(4, sys.byteorder) for file in files)
        along.append((_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed))
    sent = door.sendmsg([data], along)
    if sent < len(data):
        door.sendall(data[sent:])


def _connect() -> _socket.socket:
    for place in _places():
        door = _socket.socket(_socket.AF_UNIX)
        door.settimeout(_PATIENCE)
        try:
            _connect_to(door, reachable(place))
        except OSError:
            door.close()
        else:
            return door
    raise NotJoined(f"no desk runs at {_own_place()}")


def _connect_to(door: _socket.socket, place: str) -> None:
    """Wait in the line where many connect at once: a full line says so instead of letting one wait."""
    for _ in range(_TRIES):
        try:
            return door.connect(place)
        except BlockingIOError:
            time.sleep(_PAUSE)
    raise TimeoutError


def _places() -> "list[str]":
    """Where a desk may listen: a guarded one first, unless the environment names another
    home than it was made of."""
    known = environment.variables()
    own = _own_place()
    elsewhere = "DESKHAND_HOME" in known and not _is_guarded(environment.home(known))
    if "DESKHAND_SOCKET" in known or elsewhere:
        return [own]
    return [GUARDED, own]


def _is_guarded(home: str) -> bool:
    try:
        with open(RECORD, encoding="utf-8", errors="surrogateescape") as opened:
            return home == environment.GUARDED_HOME or f'"moved": "{home}"' in opened.read()
    except OSError:
        return False


def _own_place() -> str:
    known = environment.variables()
    if given := known.get("DESKHAND_SOCKET"):
        return os.path.expanduser(given)
    return os.path.join(environment.home(known), SOCKET)


def _read_greeting(door: _socket.socket) -> bytes:
    """Byte by byte behind the last NUL: what follows is not ours."""
    read = b""
    while not read.endswith(b"\0\n"):
        more = door.recv(1)
        if not more:
            raise ValueError("it closed the connection")
        read += more
    return read


def _set_options(names: "list[str]") -> "Iterator[str]":
    """What the environment sets of these, in any case, and whatever else looks like an option of the desk."""
    known = set(names)
    for name, value in environment.variables().items():
        if name.upper() in known or name.startswith("DESKHAND_"):
            yield f"{name}={value}"


def _hold(door: _socket.socket) -> int:
    """Be there until the desk or its client ends."""
    ended = False
    try:
        while door.recv(_CHUNK):
            ended = True
    except ConnectionError:
        pass
    return _end(ended=ended)


def _end(*, ended: bool) -> int:
    """The exit code; without an end of the client's input it was the desk that ended."""
    if ended:
        return 0
    _say("the desk has ended")
    return UNAVAILABLE


def _pump(door: _socket.socket) -> int:
    ended: list[bool] = []
    _thread.start_new_thread(_send_input, (door, ended))
    try:
        while data := door.recv(_CHUNK):
            while data:
                data = data[os.write(1, data) :]
    except (BrokenPipeError, ConnectionError):
        pass  # one side has gone: there is nobody left to tell
    return _end(ended=bool(ended))


def _send_input(door: _socket.socket, ended: "list[bool]") -> None:
    try:
        while data := _read_input():
            door.sendall(data)
        ended.append(True)
        door.shutdown(_socket.SHUT_WR)
    except OSError:
        return  # the desk has gone, and `_pump` says so


def _read_input() -> bytes:
    try:
        return os.read(0, _CHUNK)
    except OSError:  # a client that closed it before anything was read
        return b""


def _say(text: str) -> None:
    os.write(2, f"{text}\n".encode("utf-8", "replace"))
