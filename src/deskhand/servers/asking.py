"""`ask_person`: an assistant's question on the same page as everything else that waits."""

from typing import Annotated
from unicodedata import normalize

from pydantic import BaseModel, Field

from deskhand.app import Desk
from deskhand.errors import Denied, DeskError, FieldProblem, InvalidInput
from deskhand.gate import Failed, Limited, NotApproved, Outcome, Released, SendingOff
from deskhand.gate.outcomes import refuse_off
from deskhand.gate.question import MOST_CHOICES, Question
from deskhand.gate.requests import Request
from deskhand.servers.callers import asker, client
from deskhand.servers.calls import ToolResult
from deskhand.servers.mail import DRAFTS
from deskhand.servers.tool import DeskTool, tool

LONGEST_WAIT = 7 * 24 * 60
_LATER = "call again with the same words later, or ask get_action; go on meanwhile"
_NOBODYS = "what the database has is not the person's answer; ask again"


class PersonAnswer(BaseModel):
    request: str | None = Field(description="its id, for get_action")
    state: str = Field(description="waiting, answered, rejected or expired")
    answer: str | None = Field(description="the person's words, once they answered")
    hint: str | None = None


Choices = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=100)]] | None,
    Field(max_length=MOST_CHOICES, description="to choose from; else free text"),
]
Minutes = Annotated[int, Field(ge=1, le=LONGEST_WAIT, description="minutes")]


def asking_tools(desk: Desk) -> list[DeskTool]:
    async def ask_person(
        question: Annotated[str, Field(min_length=1, max_length=4000)],
        choices: Choices = None,
        expires_in: Minutes = LONGEST_WAIT,
    ) -> ToolResult[PersonAnswer]:
        """Put a question before the person, who answers later: ask get_action, or call
        again with the same words."""
        given = tuple(each.strip() for each in choices or ())
        if not question.strip():
            raise InvalidInput(
                "there is no question", fields=[FieldProblem("question", "is empty", "")]
            )
        # In the one spelling of Unicode or the other they look the same.
        seen = {normalize("NFC", each) for each in given}
        if len({*seen, ""}) <= len(given):
            raise InvalidInput(
                "two choices are the same, or one is empty",
                fields=[FieldProblem("choices", "names one twice, or nothing", "")],
            )
        if any(len(each.splitlines()) > 1 for each in given):
            raise InvalidInput(
                "a choice is one line",
                fields=[FieldProblem("choices", "has a line's end in it", "")],
                hint="say the rest in the question",
            )
        asked = Question(text=question, choices=given, asker=asker(), minutes=expires_in)
        outcome = await desk.gate.propose(asked, "desk_mcp", client=client())
        waits = outcome.waits if isinstance(outcome, NotApproved) else None
        return ToolResult(await _describe(desk, outcome), recorded=True, waits=waits)

    return [
        tool(ask_person, title="Ask the person", annotations=DRAFTS, recorded_by="gate")
    ]


async def describe_answer(desk: Desk, request: Request) -> PersonAnswer:
    """What came of a question in the end."""
    if request.state == "sent":
        words = await find_words(desk, request)
        if words is None:
            return PersonAnswer(
                request=request.id, state="rejected", answer=None, hint=_NOBODYS
            )
        return PersonAnswer(request=request.id, state="answered", answer=words)
    return PersonAnswer(
        request=request.id, state=request.state, answer=None, hint=request.note
    )


async def find_words(desk: Desk, request: Request) -> str | None:
    """What the person said to a question; None where its row says more than they did."""
    if not await desk.gate.has_persons_word(request):
        return None
    return request.words or "yes"


async def _describe(desk: Desk, outcome: Outcome) -> PersonAnswer | DeskError:
    match outcome:
        case Released(earlier=str() as name):
            return await describe_answer(desk, await desk.waiting.find(name))
        case NotApproved(why="rejected", note=note):
            return PersonAnswer(request=None, state="rejected", answer=None, hint=note)
        case NotApproved(waits=name):
            return PersonAnswer(request=name, state="waiting", answer=None, hint=_LATER)
        case SendingOff(off):
            return refuse_off(off, "logged, nobody is asked")
        case Failed(error):
            return error
        case (
            Released() | Limited()
        ):  # pragma: no cover - a question is neither sent in this call nor counted
            return Denied("the question was not asked", reason="no_approval")
