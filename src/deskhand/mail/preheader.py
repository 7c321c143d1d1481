"""Whether what a mail hides is what newsletters hide: a line for the list of mails, and filler behind it. Pure.

What was hidden is out of the text in any case; this only tells the ordinary from what should alarm a reader. When in
doubt it is not ordinary.
"""

import re
import unicodedata
from collections.abc import Iterable

from deskhand import unseen

LONGEST = 500
"""Characters that a preheader may have, without its filler."""
_LONGEST_PERIOD = 12
_FILLERS = frozenset(
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200c\u200d\u200e\u200f\u2060\u2800\u3164\ufeff\uffa0"
)
_MACHINE = (
    r"(?:ai|llms?|language models?|models?|assistants?|agents?"
    r"|(?:chat)?bots?|claude|(?:chat)?gpt|gemini|copilot)"
)
_FEW_WORDS = r"\W+(?:\w+\W+){0,5}?"
_EARLIER = r"(?:previous|prior|above|earlier|preceding|instructions?|prompts?|rules?|guidelines?|context|everything)"
_PRIVATE = (
    r"(?:@|\biban\b|passwords?|credentials?|mailbox|contacts|documents?"
    r"|\be?-?mails?\b|messages\b|\bkeys?\b|attach)"
)
_SPEAKING = (
    # What was said before does not count.
    rf"\b(?:ignore|disregard|forget|override|bypass|overrule|neglect)\b{_FEW_WORDS}{_EARLIER}",
    r"\b(?:new|updated?|following|these|hidden|secret|further|additional) (?:instructions?|directives?)\b",
    r"\b(?:system|developer|hidden|initial) ?(?:prompt|message|instruction|override)",
    # It speaks to a program.
    rf"\b(?:dear|hey|attention|note (?:to|for)|as an?|you are|if you are|for|to) (?:an? |the |any |all )?{_MACHINE}\b",
    rf"\b{_MACHINE}\b ?(?:,|:|must|should|shall|please|has to|have to|needs? to|is to|are to)",
    r"(?:^|\s)(?:system|assistant|user|human|tool|function) ?:|<\||\|>|\[/?inst\]|```|</?\w+>|###",
    # It says what should be done.
    rf"\b(?:forward|send|reply with|transfer|wire|leak|upload|exfiltrate|copy|bcc|share)\b.{{0,80}}{_PRIVATE}",
    r"\b(?:send|give|show|mail|forward) (?:me|him|them)\b",
    rf"\b(?:approve|authori[sz]e|accept)\b{_FEW_WORDS}(?:requests?|drafts?|pending|transfer|actions?|everything|all)\b",
    r"\b(?:do not|don'?t|never|without) (?:tell|mention|inform|show|reveal|alert|notif|asking)",
    rf"\b(?:call|use the|invoke|run|execute)\b{_FEW_WORDS}(?:tools?|functions?|commands?|scripts?|shell)\b|\b\w+_\w+\(",
    r"\b(?:archive|delete|mark|move|trash) (?:this|the|all|any|these)\b.{0,40}\b(?:e?mails?|messages?|thread)\b",
    r"\bas (?:safe|trusted|approved)\b|\b(?:jailbreak|prompt injection|base64|decode)\b|[a-z0-9+/]{60,}",
    # The same in other languages.
    r"ignorier|missacht|vergiss|anweisung|oublie[zr]? |olvida|dimentica|esquece|negeer|zignoruj|önceki talimat|yok say",
    r"\bignor(?:ez|e[rs]?|a|ar|are|i)\b.{0,40}(?:instru|istru|préc|prec|anter)",
    r"instrucciones|istruzioni|instruções|instructies|instrukcj|инструкц|игнорир|забудь",
    r"指示|指令|忽略|无视|無視|무시|지시|تجاهل|تعليمات",
)
_ANY = re.compile("|".join(_SPEAKING), re.IGNORECASE)
_RUN_TOGETHER = re.compile(
    "ignore(?:aii|any|the|every|previous|prior|above|your)|previousinstruct|systemprompt|disregard"
)
"""Of letters alone, in which an l is written as an i: both stand for a 1."""


def is_ordinary(before: Iterable[str], behind: Iterable[str], shown: str) -> bool:
    """Whether hidden text is a preheader: short, `before` the first word that shows, and to people.

    What is hidden `behind` has to say what is shown anyway, as parts for other screens do.
    """
    first = " ".join(before)
    rest = [" ".join(text.split()) for text in behind]
    plain = " ".join(shown.split())
    if any(text not in plain for text in rest):
        return False
    words = _without_filler(first)
    return len(words) <= LONGEST and is_filler(first) and not speaks_to_machines(words)


def speaks_to_machines(text: str) -> bool:
    """Whether it reads as an instruction; rather too often than not."""
    plain = " ".join(unicodedata.normalize("NFKC", text).split()).casefold()
    alike = unseen.reads_as(plain)
    joined = re.sub(r"[^a-z]", "", alike).replace("l", "i")
    return (
        any(_ANY.search(each) for each in (plain, alike))
        or _RUN_TOGETHER.search(joined) is not None
    )


def is_filler(text: str) -> bool:
    """Whether the characters that show nothing are the usual ones over and over: a message is not periodic."""
    runs = [
        trace for trace in unseen.traces(text) if trace.kind in ("invisible", "turning")
    ]
    found = "".join(text[trace.start : trace.end] for trace in runs)
    if not _FILLERS.issuperset(found):
        return False
    periods = range(1, _LONGEST_PERIOD + 1)
    return any(found[period:] == found[:-period] for period in periods) or len(found) <= 1


def _without_filler(text: str) -> str:
    return " ".join("".join(char for char in text if not unseen.is_unseen(char)).split())
