"""Which cards of the queue the person looks for."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deskhand.gate.cards import Card


@dataclass(frozen=True, slots=True)
class CardFilter:
    """Which cards are looked for; empty is any."""

    text: str = ""
    asker: str = ""
    risk: str = ""
    kind: str = ""
    account: str = ""

    def takes(self, card: "Card") -> bool:
        if self.asker not in ("", card.asker) or self.account not in ("", card.account):
            return False
        if self.risk not in ("", card.risk.level) or self.kind not in ("", card.kind):
            return False
        named = [
            card.subject,
            card.asker,
            card.account,
            *(each.address for each in card.everybody),
        ]
        text = "\n".join(named).casefold()
        return all(word in text for word in self.text.casefold().split())


EVERY = CardFilter()
