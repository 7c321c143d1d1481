"""One HTTP connection. Clients that say nothing keep nobody out: they lose their place, or they run out of time."""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 400
"""So many connections there are at once; a further one takes the place of the one that was silent the longest."""
HEAD_SECONDS = 10
"""In this time the head of a request must have come whole."""


class HttpConnection(H11Protocol):
    _timer: asyncio.TimerHandle | None = None
    _heard = 0.0
    """When the client said something last."""
    _awaited = 0.0
    """Since when the head of a request is waited for."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._heard = self.loop.time()
        if len(self.connections) > MOST:
            self._make_room()
        self._await_head()

    def data_received(self, data: bytes) -> None:
        self._heard = self.loop.time()
        super().data_received(data)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._has_request:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    @property
    def _has_request(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _is_silent(self) -> bool:
        """Whether nothing happens here until the client says more."""
        if self.transport.is_closing():
            return False
        return not self._has_request or (self.cycle.more_body and not self.flow.read_paused)

    def _make_room(self) -> None:
        others = [each for each in self.connections if isinstance(each, HttpConnection)]
        silent = [each for each in others if each._is_silent]  # noqa: SLF001
        # This one is among them; where all others are at work, it goes itself.
        min(silent, key=lambda each: each._heard).transport.close()  # noqa: SLF001

    def _await_head(self) -> None:
        self._awaited = self.loop.time()
        if self._timer is None:
            self._look_again()

    def _look_again(self) -> None:
        """One timer for many requests: one for each would cost more than the time is worth that it runs too long."""
        self._timer = self.loop.call_at(self._awaited + HEAD_SECONDS, self._end_if_late)

    def _end_if_late(self) -> None:
        self._timer = None
        if self._has_request:
            return
        if self.loop.time() < self._awaited + HEAD_SECONDS:
            self._look_again()
        else:
            self.transport.close()
