"""The orchestrator: looks for mail, works through the steps, heeds the person's files, and says how it stands.

Without a vault it only goes on with what the person has approved: mail, files and notes are another worker's.
"""

import asyncio
import logging
import random
import secrets
import shlex
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from deskhand import config
from deskhand.app import Desk
from deskhand.clock import iso
from deskhand.errors import BadConfig, DeskError, Internal
from deskhand.gate.requests import Request
from deskhand.orchestrator import (
    files,
    first_look,
    mails,
    reminding,
    replies,
    status,
    steps,
    watcher,
)
from deskhand.orchestrator.conversations import Conversations
from deskhand.orchestrator.elsewhere import Elsewhere
from deskhand.orchestrator.model import Model
from deskhand.orchestrator.pending import PendingNotes
from deskhand.orchestrator.rules import RulesFile
from deskhand.orchestrator.steps import Held, LeaseLost, Step

if TYPE_CHECKING:
    from deskhand.orchestrator.mcp_client import MCPClient

log = logging.getLogger("deskhand.orchestrator")

WORKERS = 4
TICK = 1.0
"""How often the rows are asked whether something is due, in seconds; a mail that this process saw rings at once."""
GLANCE = 0.5
ADOPT_EVERY = 60
WAIT = 30.0
PUBLISH_EVERY = 10.0
_WATCHED = ("Drafts", "Approved", "Rejected")
_OWN_SERVER = [sys.executable, "-m", "deskhand", "mcp", "gmail"]


class Orchestrator:
    def __init__(
        self,
        desk: Desk,
        workers: int = WORKERS,
        chance: Callable[[], float] = random.random,
        *,
        asks: bool = False,
    ) -> None:
        """With `asks` there is a person to ask before the first mail is brought in."""
        self._desk = desk
        self._asks = asks
        self._has_vault = desk.settings.vault_path is not None
        self._workers = workers
        self._chance = chance
        self._lease = timedelta(seconds=desk.settings.lease_seconds)
        self._triage = mails.Triage(
            RulesFile(desk.settings.home),
            Model(desk.settings) if desk.settings.model else None,
        )
        self._notes = PendingNotes(desk)
        self._conversations = Conversations(desk)
        self._elsewhere = Elsewhere(desk)
        self._accounts = [account.name for account in desk.settings.mail_accounts]
        self._bell = asyncio.Event()
        self._health: dict[str, Any] = {"model": desk.settings.model or "none (rules only)"}

    @cached_property
    def _gmail(self) -> "MCPClient":
        """Made when the first mail is to be sent: until then nothing of MCP is loaded."""
        from deskhand.orchestrator.mcp_client import MCPClient

        settings = self._desk.settings
        command = (
            shlex.split(settings.gmail_server) if settings.gmail_server else _OWN_SERVER
        )
        token = self._desk.token() if command[0].startswith("http") else None
        environment, now = config.copy_environment(), self._desk.now
        return MCPClient(
            "gmail",
            command,
            settings.vault,
            environment=environment,
            token=token,
            now=now,
            logs=settings.logs,
        )

    def _open_gmail(self) -> "MCPClient":
        return self._gmail

    async def close(self) -> None:
        if "_gmail" in self.__dict__:
            await self._gmail.close()
        if self._triage.model is not None:
            await self._triage.model.close()

    async def once(self) -> None:
        """One pass over all that waits, backoff or not."""
        started = self._desk.now()
        self._say_what_it_does()
        if self._has_vault:
            self._triage.rules.read()
            await self._look_everywhere()
            if error := await self._attempt(self._notes.look(), "notes"):
                log.warning("notes_not_read", extra={"why": error.message})
        unheard = await self._attempt(replies.look_around(self._desk), "approvals")
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work_through(started))
        if error := await self._attempt(
            reminding.look(self._desk, all_of_them=True), "follow-ups"
        ):
            log.warning("not_reminded", extra={"why": error.message})
        await self._publish_last()
        if unheard is not None:
            raise unheard

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set; what was begun then is brought to its end."""
        self._say_what_it_does()
        keep = self._desk.parts.keep
        loops = [
            asyncio.create_task(keep(name, work)) for name, work in self._loops().items()
        ]
        try:
            await self._work_until(stop)
        finally:
            for each in loops:
                each.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
        await self._publish_last()

    def _loops(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What goes on beside the work itself: parts of the desk, each with its name."""
        if not self._has_vault:
            return {"approvals": self._look_around, "follow-ups": self._remind}
        return {
            **{self._part(name): partial(self._watch, name) for name in self._accounts},
            "notes": self._read_notes,
            "approvals": self._listen,
            "dashboard": self._publish,
            "follow-ups": self._remind,
        }

    def _say_what_it_does(self) -> None:
        if self._has_vault:
            log.info(
                "started", extra={"work": "mail, drafts, and sending what is approved"}
            )
        else:
            log.info(
                "started",
                extra={
                    "work": "sending what is approved; for mail and drafts set VAULT_PATH"
                },
            )

    # Mail.

    def _part(self, account: str) -> str:
        """How the watcher of an account is called among the parts of the desk."""
        return "watcher" if len(self._accounts) == 1 else f"mail {account}"

    async def _look_everywhere(self) -> None:
        errors = [
            await self._attempt(self._look(name), self._part(name))
            for name in self._accounts
        ]
        wrong = [error for error in errors if isinstance(error, BadConfig)]
        if len(wrong) == len(errors):
            raise wrong[0]

    async def _look(self, account: str) -> None:
        named = "mailbox" if len(self._accounts) == 1 else f"mail {account}"
        new = 0
        try:
            await watcher.demand_signed_in(self._desk, account)
            if await first_look.may_begin(self._desk, account, asks=self._asks):
                new = await watcher.look(self._desk, account)
                await self._conversations.look(account)
                name = await watcher.mailbox_name(self._desk, account)
                await self._elsewhere.look(account, name)
            else:
                # Nothing is brought in yet, or ever; whether the account works is asked all the same.
                await self._desk.account_mailbox(account).position()
        except DeskError as error:
            self._health[named] = error.line
            log.warning(
                "mailbox_unavailable", extra={"account": account, "why": error.message}
            )
            raise
        self._health[named] = "ok"
        if new:
            self._health["last_mail"] = iso(self._desk.now())
            self._bell.set()

    async def _watch(self, account: str) -> None:
        while True:
            await self._look(account)
            self._desk.parts.works(self._part(account))
            name = await watcher.mailbox_name(self._desk, account)
            cursor = await self._desk.store.read(partial(steps.cursor, mailbox=name))
            if cursor is None:
                await first_look.wait_for_answer(self._desk, name, WAIT)
            else:
                await self._desk.account_mailbox(account).wait(cursor, WAIT)

    # The person's files.

    async def _listen(self) -> None:
        await self._whenever_changed(
            "approvals", lambda: _WATCHED, lambda: replies.look_around(self._desk)
        )

    async def _read_notes(self) -> None:
        await self._whenever_changed("notes", lambda: self._notes.watched, self._notes.look)

    async def _whenever_changed(
        self,
        part: str,
        watched: Callable[[], tuple[str, ...]],
        look: Callable[[], Awaitable[None]],
    ) -> None:
        """Look when something in these places of the vault changes, and once a minute."""
        seen: tuple[int, ...] | None = None
        glances = 0
        while True:
            found = tuple(files.stamp(self._desk.own_root, place) for place in watched())
            if found != seen or glances * GLANCE >= ADOPT_EVERY:
                await look()
                self._desk.parts.works(part)
                self._bell.set()
                seen = found
                glances = 0
            glances += 1
            await asyncio.sleep(GLANCE)

    async def _look_around(self) -> None:
        while True:
            await replies.look_around(self._desk)
            self._desk.parts.works("approvals")
            await asyncio.sleep(ADOPT_EVERY)

    async def _remind(self) -> None:
        while True:
            await reminding.look(self._desk)
            self._desk.parts.works("follow-ups")
            await asyncio.sleep(reminding.EVERY)

    async def _publish_last(self) -> None:
        if self._has_vault:
            with suppress(
                DeskError, OSError
            ):  # a vault that is away keeps nobody from ending
                await status.publish(self._desk, self._standing(), always=True)

    async def _publish(self) -> None:
        while True:
            await status.publish(self._desk, self._standing())
            self._desk.parts.works("dashboard")
            await asyncio.sleep(PUBLISH_EVERY)

    def _standing(self) -> dict[str, Any]:
        """What the state file says of the desk, with each part that is down."""
        down = {part.name: f"does not run: {part.why}" for part in self._desk.parts.down}
        return self._health | {"not_triaged": self._notes.refused} | down

    # The steps.

    async def _work_through(self, started: datetime) -> None:
        while (work := await self._claim(started)) is not None:
            await self._take(work)

    async def _work_until(self, stop: asyncio.Event) -> None:
        free = asyncio.Semaphore(self._workers)
        ending = asyncio.create_task(stop.wait())
        async with asyncio.TaskGroup() as group:
            while not stop.is_set():
                await free.acquire()
                work = await self._due()
                if work is not None:
                    group.create_task(self._take(work)).add_done_callback(
                        lambda _: free.release()
                    )
                    continue
                free.release()
                self._bell.clear()
                ringing = asyncio.create_task(self._bell.wait())
                wait = await self._time_to_next()
                await asyncio.wait(
                    [ringing, ending], timeout=wait, return_when=asyncio.FIRST_COMPLETED
                )
                ringing.cancel()

    async def _due(self) -> Step | Request | None:
        work = None
        try:
            if await self._is_any_due(self._desk.now()):
                work = await self._claim(None)
            if self._has_vault:
                self._triage.rules.read()
        except DeskError as error:
            # Not raised: what is under way goes on, and the next look is a tick away.
            self._desk.parts.fail("orchestrator", error)
        else:
            self._desk.parts.works("orchestrator")
        return work

    async def _is_any_due(self, now: datetime) -> bool:
        due = await self._desk.gate.next_due()
        if due is not None and due <= now:
            return True
        return self._can_decide() and await self._desk.store.read(steps.is_any_due, now)

    def _can_decide(self) -> bool:
        """While the rules have errors mails wait, and only what is approved goes on."""
        if self._has_vault:
            with suppress(BadConfig):
                self._triage.rules.read()
                return True
        return False

    async def _time_to_next(self) -> float:
        """Until a hold ends, but never longer than a tick."""
        with suppress(DeskError):
            due = await self._desk.gate.next_due()
            if due is not None:
                return min(TICK, max(0.01, (due - self._desk.now()).total_seconds()))
        return TICK

    async def _claim(self, untried_since: datetime | None) -> Step | Request | None:
        """What the person approved comes before what arrived."""
        request = await self._desk.gate.take_due(untried_since)
        if request is not None or not self._can_decide():
            return request
        now = self._desk.now()
        return await self._desk.store.write(steps.claim, now, self._lease, untried_since)

    async def _take(self, work: Step | Request) -> None:
        match work:
            case Step():
                async with Held(
                    self._desk.store, work, self._lease, self._desk.now
                ) as held:
                    error = await self._attempt(
                        mails.advance(self._desk, self._triage, held), work.key
                    )
                    if error is not None:
                        await self._postpone(held, error)
            case Request():
                # One that fails comes back when its turn does, and somebody looks how far it came.
                sending = self._desk.gate.go_on(work, self._send)
                if (error := await self._attempt(sending, work.id)) is not None:
                    log.warning(
                        "send_postponed", extra={"request": work.id, "why": error.message}
                    )

    async def _send(self, request: Request) -> None:
        await replies.send(self._desk, self._open_gmail, request)

    async def _attempt(self, work: Awaitable[object], name: str) -> DeskError | None:
        """The one seam of what runs here: whatever goes wrong becomes an error that can be kept in a row."""
        try:
            await work
        except LeaseLost:
            log.warning("lease_lost", extra={"step": name})
        except DeskError as error:
            return error
        except Exception:
            reference = secrets.token_hex(4)
            log.exception("crash", extra={"step": name, "reference": reference})
            return Internal("an unexpected error", reference=reference)
        return None

    async def _postpone(self, held: Held, error: DeskError) -> None:
        step = held.step
        wait = steps.backoff(step.attempts, self._chance())
        after = error.details.get("retry_after_seconds")
        if isinstance(after, int):
            wait = max(wait, timedelta(seconds=after))
        again = self._desk.now() + wait
        log.warning(
            "step_failed",
            extra={"step": step.key, "code": error.code, "why": error.message},
        )
        with suppress(LeaseLost, DeskError):
            await held.postpone(error.line, again)
