"""Tells the browsers that asked for it, by web push, how many things wait. The same notifier as for all others."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from deskhand.abroad import Reach
from deskhand.app import Desk
from deskhand.resident.notify import Deliver, Known, Pace, Reception, tell_all
from deskhand.web import subscriptions
from deskhand.web.subscriptions import Subscription
from deskhand.web.webpush import PushAnswer, PushSender, make_key, reach_of

PART = "push"


async def run(desk: Desk, pace: Pace | None = None) -> None:
    await tell_all(
        desk, PART, Browsers(desk, reach_of(desk)).list_receivers, pace or Pace()
    )


@dataclass(slots=True)
class Browsers:
    desk: Desk
    reach: Reach
    told: dict[str, Subscription] = field(default_factory=dict)
    """Those that are told, as they were seen last."""

    async def list_receivers(self) -> Mapping[str, Deliver]:
        """Who is told. Whoever is not any more hears that: nobody silences a browser behind the person's back."""
        found = await self.desk.store.read_one(subscriptions.list_subscriptions)
        before = self.told
        self.told = {each.name: each for each in found}
        ended = [before[name] for name in before.keys() - self.told.keys()]
        await asyncio.gather(*(self._send(each, ended=1) for each in ended))
        return {each.name: partial(self._deliver, each) for each in found}

    async def _deliver(self, to: Subscription, found: Known) -> Reception:
        answer = await self._send(to, waiting=len(found.waiting), down=len(found.down))
        if answer.outcome == "gone" and await self.desk.store.write(
            subscriptions.end, to.name
        ):
            self.told.pop(to.name, None)
            about = {"why": "the browser is gone"}
            await self.desk.record("desk", "end_notifications", to.name[:12], about)
        return Reception(answer.outcome == "sent", answer.pause)

    async def _send(self, to: Subscription, **counts: int) -> PushAnswer:
        desk = self.desk
        sender = PushSender(
            make_key(desk.secret("push.key")), desk.settings.inbox_origin, self.reach
        )
        return await sender.send(json.dumps(counts).encode(), to, desk.now())
