"""How anything of the desk listens for HTTP: on this machine only."""

import errno
import resource
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deskhand.errors import Unavailable

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

_FILES = 4096
"""How many files a process may open that serves HTTP: connections, databases, watches."""
_QUEUE = 256


def open_port(port: int) -> socket.socket:
    """A listener on 127.0.0.1; port 0 takes a free one."""
    try:
        listener = socket.create_server(("127.0.0.1", port), backlog=_QUEUE)
    except (OSError, OverflowError) as error:
        raise Unavailable(
            f"port {port} cannot be used: {getattr(error, 'strerror', None) or error}",
            hint="choose another with --port; 0 takes a free one",
        ) from error
    # Each connection inherits it. An answer goes out as head and body; without this the body waits for the client's
    # word that the head has come, which takes 40 ms. asyncio sets it itself only where the listener names its protocol.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def why_taken(port: int) -> str | None:
    """Why nobody can listen at this port of 127.0.0.1; None where it is free."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def open_twin(port: int) -> socket.socket | None:
    """The same port on ::1, where a browser may come that was told `localhost`; None where
    there is no such address."""
    try:
        return socket.create_server(("::1", port), family=socket.AF_INET6, backlog=_QUEUE)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            return None
        raise Unavailable(
            f"somebody else listens at [::1]:{port}",
            hint=f"open http://127.0.0.1:{port}, and type no password at localhost",
        ) from error


def http_config(
    app: "ASGIApp", proxies: Sequence[str] = (), **more: Any
) -> "uvicorn.Config":
    """How the desk speaks HTTP. No header says who asks or how, unless it comes from one of the `proxies`."""
    import uvicorn

    from deskhand.connection import HttpConnection

    _raise_file_limit()
    return uvicorn.Config(
        app,
        http=HttpConnection,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        backlog=_QUEUE,
        **more,
    )


async def serve_http(app: "ASGIApp", port: int, path: str) -> None:
    """Serve `app` on 127.0.0.1 until the process is told to stop; `path` is what its clients are shown."""
    import uvicorn

    listener = open_port(port)
    # The one line a person (or a script that started us) needs; logs follow as JSON.
    address = f"http://127.0.0.1:{listener.getsockname()[1]}{path}"
    print(f"listening on {address}", file=sys.stderr, flush=True)  # noqa: T201
    await uvicorn.Server(http_config(app, lifespan="on")).serve([listener])


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
