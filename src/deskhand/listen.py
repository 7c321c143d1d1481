"""How anything of the desk listens for HTTP: on this machine only."""

import socket
import sys
from typing import TYPE_CHECKING

from deskhand.errors import Unavailable

if TYPE_CHECKING:
    from starlette.types import ASGIApp


def open_port(port: int) -> socket.socket:
    """A listener on 127.0.0.1; port 0 takes a free one."""
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except (OSError, OverflowError) as error:
        raise Unavailable(
            f"port {port} cannot be used: {getattr(error, 'strerror', None) or error}",
            hint="choose another with --port; 0 takes a free one",
        ) from error
    # Each connection inherits it. An answer goes out as head and body; without this the body waits for the client's
    # word that the head has come, which takes 40 ms. asyncio sets it itself only where the listener names its protocol.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


async def serve_http(app: "ASGIApp", port: int, path: str) -> None:
    """Serve `app` on 127.0.0.1 until the process is told to stop; `path` is what its clients are shown."""
    import uvicorn

    listener = open_port(port)
    # The one line a person (or a script that started us) needs; logs follow as JSON.
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}{path}", file=sys.stderr, flush=True)  # noqa: T201
    await uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on")).serve([listener])
