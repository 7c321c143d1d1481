"""What the person approved or rejected: found in the vault, sent through the Gmail server, and settled.

That a mail was sent is read from the gate's ledger, never from an answer: a lost answer is no failure, and no fallback
can be taken for a send.
"""

import asyncio
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from deskhand.app import Desk
from deskhand.audit import vault_log
from deskhand.clock import iso
from deskhand.errors import Denied, DeskError, OutcomeUnknown, RateLimited, SendFailed
from deskhand.gate import DevMode, Failed, Limited, Released, drafts, ledger
from deskhand.gate.actions import Action
from deskhand.gate.approvals import Found
from deskhand.gate.ledger import Row
from deskhand.orchestrator import files, mails, steps
from deskhand.orchestrator.steps import Held, Step
from deskhand.store import Transaction

if TYPE_CHECKING:
    from deskhand.orchestrator.mcp_client import MCPClient

WATCHED = ("Approved", "Rejected")
_REOPENED: tuple[steps.State, ...] = ("withdrawn", "unknown")
"""What rests until the person puts its file into Approved/ again: also to say once more, where nobody knows."""


async def scan(desk: Desk) -> None:
    """A step for everything in Approved/ that the desk may send, and the person's no to what was drafted."""
    offers = await asyncio.to_thread(_offers, desk)

    def offer(tx: Transaction) -> None:
        for name, data in offers:
            _offer(desk, name, data, tx)
        _adopt(desk, tx)

    await desk.store.write(offer)
    await _heed_rejections(desk)


def _offers(desk: Desk) -> list[tuple[str, dict[str, Any]]]:
    """The name and the data of a step for each file in Approved/ that may release a mail."""
    made: list[tuple[str, dict[str, Any]]] = []
    for found in desk.approvals.files("Approved"):
        action_id = found.properties.get("action_id")
        if found.is_draft:
            named = _named(desk, found)
            made.append((named, {"draft_id": named, "file": found.name}))
        elif isinstance(action_id, str) and "seal" in found.properties:
            made.append((action_id, {"action_id": action_id}))
    return made


def _named(desk: Desk, found: Found) -> str:
    """A draft that a person wrote gets a name of its own, so that it is known again when it is edited."""
    draft_id = found.properties.get("draft_id")
    if drafts.is_id(draft_id):
        return str(draft_id)
    made = f"{drafts.PREFIX}{sha256(found.text.encode()).hexdigest()[:16]}"
    desk.approvals.mark(found, {"draft_id": made})
    return made


def _offer(desk: Desk, name: str, data: dict[str, Any], tx: Transaction) -> None:
    if not steps.add(tx, "send", name, "approved", data, desk.now()):
        among = _REOPENED if desk.settings.dev_mode else (*_REOPENED, "dev_mode")
        steps.wake(tx, f"send:{name}", "approved", among, data, desk.now())


def _adopt(desk: Desk, tx: Transaction) -> None:
    """Sends of servers that died in the middle: their lease is over, so somebody must look what became of them."""
    for row in ledger.listed(tx, ("sending",), 100):
        if row.lease is not None and row.lease <= desk.now() and row.decided_by != ledger.BY_DRAFT:
            _offer(desk, row.id, {"action_id": row.id}, tx)


async def _heed_rejections(desk: Desk) -> None:
    rejected = set(await asyncio.to_thread(files.names, desk.settings.vault, "Rejected"))
    if not rejected:
        return
    waiting = await desk.store.read(lambda tx: steps.in_states(tx, "mail", ("drafted",), 100_000))
    for step in waiting:
        if mails.draft_name(step.data) in rejected:
            await _rejected(desk, step)


async def _rejected(desk: Desk, step: Step) -> None:
    root, draft, name = desk.settings.vault, mails.draft_name(step.data), step.data["note"]
    reason = await asyncio.to_thread(_reason, desk, draft)
    if await asyncio.to_thread(files.where, root, name) == files.NEEDS_ACTION:
        marks = {"status": "rejected", "rejected_reason": reason}
        await asyncio.to_thread(files.mark, root, files.NEEDS_ACTION, name, marks)

    def remember(tx: Transaction) -> None:
        steps.correct(tx, step.data["draft_id"], "rejected", step.data["sender"], reason, desk.now())
        known = drafts.proposed(tx, step.data["draft_id"])
        if known is not None and known.words is not None:
            # The words come from the row, which no tool can write; what a file says may be anybody's.
            steps.wake(tx, step.key, "arrived", ("drafted",), step.data | {"words": known.words}, desk.now())
        else:
            steps.become(tx, step.key, "rejected", ("drafted",))

    await desk.store.write(remember)


def _reason(desk: Desk, draft: str) -> str:
    try:
        given = files.read(desk.settings.vault, "Rejected", draft).frontmatter.get("rejected_reason")
    except (OSError, ValueError, DeskError):
        given = None
    return str(given) if given else "no reason was given"


# Sending.


async def send(desk: Desk, gmail: "MCPClient", held: Held) -> None:
    if "action_id" in held.step.data:
        await _release(desk, held)
    else:
        await _send_draft(desk, gmail, held)


async def _send_draft(desk: Desk, gmail: "MCPClient", held: Held) -> None:
    draft_id = held.step.data["draft_id"]
    if await _settled(desk, held, draft_id):
        return
    found = await asyncio.to_thread(_approved, desk, held.step.data)
    row = await _row(desk, draft_id)
    if found is None and (row is None or row.state != "sending"):
        await held.rest("withdrawn", "it is no longer in Approved/")
        return
    if found is not None:
        draft = drafts.read(found)
        await _demand_approval(desk, draft)
        await held.note("approved", file=found.name, letter=draft.letter)
    failure: DeskError = SendFailed("the ledger does not say that it was sent")
    try:
        await gmail.call_tool("send_email", held.step.data["letter"])
    except Denied as error:
        if error.details.get("reason") == "dev_mode":
            await held.rest("dev_mode")
            return
        failure = error
    except DeskError as error:
        failure = error
    if not await _settled(desk, held, draft_id):
        raise failure


async def _demand_approval(desk: Desk, draft: drafts.ApprovedDraft) -> None:
    """With sealed approvals a file that was merely moved is no yes."""
    if desk.settings.approvals == "any":
        return
    known = await desk.store.read(lambda tx: drafts.proposed(tx, draft.draft_id))
    if known is None or known.approved != draft.digest:
        hint = f"run `deskhand approve {draft.draft_id}`"
        raise Denied(f"approvals are sealed here, and nobody approved exactly this text; {hint}", reason="no_approval")


def _approved(desk: Desk, data: dict[str, Any]) -> Found | None:
    """The draft's file in Approved/, under whatever name."""
    named = desk.approvals.read("Approved", data["file"])
    if named is not None and named.properties.get("draft_id") == data["draft_id"]:
        return named
    others = desk.approvals.files("Approved")
    return next((each for each in others if each.properties.get("draft_id") == data["draft_id"]), None)


async def _row(desk: Desk, draft_id: str) -> Row | None:
    def look(tx: Transaction) -> Row | None:
        action_id = drafts.released(tx, draft_id)
        return ledger.by_id(tx, action_id) if action_id else None

    return await desk.store.read(look)


async def _settled(desk: Desk, held: Held, draft_id: str) -> bool:
    """Whether the ledger says how it ended; if so, so do the notes."""
    row = await _row(desk, draft_id)
    match row.state if row else None:
        case "sent" if row:
            await desk.gate.tidy()
            await _answered(desk, draft_id, row)
            await held.rest("sent")
        case "unknown" | "rejected" if row:
            await desk.gate.tidy()
            await held.rest("unknown", f"nobody knows whether it left; Pending_Approval/{row.file} asks you")
        case _:
            return False
    return True


async def _answered(desk: Desk, draft_id: str, row: Row) -> None:
    """Both notes lie in Done with the provider's ids, and an edit is remembered for the next draft."""
    known = await desk.store.read(lambda tx: drafts.proposed(tx, draft_id))
    if known is None:
        return
    step = await desk.store.read(lambda tx: steps.find(tx, known.mail))
    if step is not None:
        root, name = desk.settings.vault, step.data["note"]
        marks = {"status": "done", "reply_message_id": row.message_id, "reply_thread_id": row.thread_id}
        marks |= {"answered_at": iso(desk.now()), "draft_path": f"{files.DONE}/{mails.draft_name(step.data)}"}
        if await asyncio.to_thread(files.where, root, name) == files.NEEDS_ACTION:
            await asyncio.to_thread(files.mark, root, files.NEEDS_ACTION, name, marks)
            await asyncio.to_thread(files.move, root, name, files.NEEDS_ACTION, files.DONE)

    def remember(tx: Transaction) -> None:
        steps.become(tx, known.mail, "answered", ("drafted", "rejected"))
        if row.difference:
            steps.correct(tx, draft_id, "edited", known.sender, row.difference[:4000], desk.now())

    await desk.store.write(remember)


async def _release(desk: Desk, held: Held) -> None:
    """A sealed request that the person approved: it needs no second call of whoever asked."""
    action_id = held.step.data["action_id"]

    def announce(leaving: Action) -> None:
        vault_log.write_pre_send(desk.settings.vault, leaving, desk.now())

    match await desk.gate.release(action_id, "orchestrator", announce):
        case Released():
            draft_id = await desk.store.read(lambda tx: drafts.behind(tx, action_id))
            if draft_id is not None:  # it was unclear whether the draft had left, and the person said: once more
                await _answered(desk, draft_id, await desk.gate.find(action_id))
            await held.rest("sent")
        case DevMode():
            await held.rest("dev_mode")
        case Limited(limits, wait):
            seconds = max(1, round(wait.total_seconds()))
            raise RateLimited(f"{limits.most} mails have left in this window", retry_after_seconds=seconds)
        case Failed(OutcomeUnknown() as error) if error.details.get("reason") == "unknown":
            await held.rest("unknown", error.message)
        case Failed(Denied() as error) if error.details.get("reason") == "no_approval":
            row = await desk.gate.find(action_id)
            await held.rest("sent" if row.state == "sent" else "withdrawn", f"the request is {row.state}")
        case Failed(error):
            raise error


async def explain(desk: Desk, step: Step, error: DeskError, again: str) -> None:
    """The reason in the note that stays in Approved."""
    found = await asyncio.to_thread(_approved, desk, step.data) if "draft_id" in step.data else None
    if found is not None:
        marks = {"last_error": f"{error.code}: {error.message}", "attempts": step.attempts + 1, "next_try": again}
        await asyncio.to_thread(desk.approvals.mark, found, marks)
