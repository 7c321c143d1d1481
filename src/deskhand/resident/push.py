"""Tells the browsers that asked for it, by web push, how many things wait. The same notifier as for all others."""

import json
from collections.abc import Mapping
from functools import partial

from deskhand.abroad import Reach
from deskhand.app import Desk
from deskhand.resident.notify import Deliver, Known, Pace, tell_all
from deskhand.web import subscriptions
from deskhand.web.subscriptions import Subscription
from deskhand.web.webpush import PushSender, make_key, reach_of

PART = "push"


async def run(desk: Desk, pace: Pace | None = None) -> None:
    reach = reach_of(desk)

    async def list_receivers() -> Mapping[str, Deliver]:
        found = await desk.store.read_one(subscriptions.list_subscriptions)
        return {each.name: partial(_deliver, desk, reach, each) for each in found}

    await tell_all(desk, PART, list_receivers, pace or Pace())


async def _deliver(desk: Desk, reach: Reach, to: Subscription, found: Known) -> bool:
    sender = PushSender(
        make_key(desk.secret("push.key")), desk.settings.inbox_origin, reach
    )
    counts = {"waiting": len(found.waiting), "down": len(found.down)}
    outcome = await sender.send(json.dumps(counts).encode(), to, desk.now())
    if outcome == "gone" and await desk.store.write(subscriptions.end, to.name):
        await desk.record(
            "desk",
            "end_notifications",
            to.name[:12],
            {"why": "the browser is gone"},
            None,
            0,
        )
    return outcome == "sent"
