"""A question of an assistant to the person: nothing leaves the desk but the answer, to whoever asked."""

import shlex
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from deskhand.errors import InvalidInput, printable
from deskhand.gate.face import NoMail

MOST_CHOICES = 6


class Question(NoMail):
    way_back = "An answer that was read cannot be taken back; say it otherwise when you are asked again."
    caution = ("Your answer goes to whoever asked, and nowhere else.",)
    noun = "question"
    done = "been answered"
    again = "answer"
    where_to_look = "Whoever asked knows whether they have read it."
    unknown = (
        "the answer may or may not have been read, and it is not given again by itself"
    )
    file_type: ClassVar[str] = "question"

    kind: Literal["ask_person"] = "ask_person"
    text: Annotated[str, Field(min_length=1, max_length=4000)]
    choices: tuple[str, ...] = ()
    asker: str
    """Whose question it is, and who alone gets the answer."""
    minutes: int = 7 * 24 * 60

    def digested(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude={"minutes"})

    @property
    def is_only_told(self) -> bool:
        return True

    @property
    def lifetime(self) -> timedelta:
        return timedelta(minutes=self.minutes)

    account: ClassVar[str] = ""
    to: ClassVar[str] = ""

    @property
    def target(self) -> str:
        return "a question"

    @property
    def subject(self) -> str:
        return printable(self.text.strip().partition("\n")[0], 120)

    @property
    def body(self) -> str:
        return "\n".join([self.text, *(f"- {each}" for each in self.choices)])

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        return tuple(("choice", each) for each in self.choices)

    @property
    def question(self) -> str:
        return self.subject

    @property
    def about(self) -> str:
        if self.choices:
            return "Whoever asked is told which one you choose."
        return "Whoever asked is told: Approved/ means yes, Rejected/ no; other words by the page or the terminal."

    def edit(self, changes: Mapping[str, str]) -> "Question":
        if any(getattr(self, key, "") != value for key, value in changes.items()):
            raise InvalidInput(
                "a question is not edited", hint="answer it in your own words"
            )
        return self

    def demand_answer(self, words: str, name: str = "ID") -> None:
        """Refuse what is none of the choices; `name` is the request's id."""
        if self.choices and words not in self.choices:
            first = shlex.quote(self.choices[0])
            raise InvalidInput(
                f"choose one of: {', '.join(self.choices)}",
                hint=f"the page has a button for each; `deskhand respond {name} {first}` does the same",
            )
