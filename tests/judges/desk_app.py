"""A desk with all its doors on a free port: what the judges come to."""

import anyio

from deskhand.app import Desk
from deskhand.config import load
from deskhand.listen import serve_http
from deskhand.resident.doors import open_doors
from deskhand.web.site import site


async def serve() -> None:
    desk = Desk(load().settings)
    made = open_doors(desk)
    async with made.run():
        await serve_http(site(desk, beside=made.routes), 0, "")
    await desk.close_mailbox()
    desk.close()


if __name__ == "__main__":
    anyio.run(serve)
