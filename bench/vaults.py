"""Vaults for measuring: the same seed gives the same notes, byte for byte."""

import os
import random
import re
from bisect import bisect
from itertools import accumulate
from pathlib import Path

WORDS = 40_000
PER_FOLDER = 40
PASSAGES = (
    "明日の会議は東京駅の近くで行います。資料を忘れないでください。",
    "项目的下一步是整理数据库并写出完整的报告。",
    "회의록은 금요일까지 공유해 주세요.",
    "Ærlig talt, el niño bebió café crème à Zürich, naïveté oblige.",
    "Die Straße zur Größe führt über Fußgängerübergänge.",
    "Встреча перенесена на четверг, отчёт готов.",
    "shipped it 🎉🚀 with the whole crew 👩‍💻",
)
STATUSES = ("open", "done", "waiting", "someday")
ONSETS = re.split(
    " ",
    "b c d f g h j k l m n p r s t v w z bl br ch cl cr dr fl gr pl pr qu sc sh sl sp st str th tr",
)
VOWELS = re.split(" ", "a e i o u a e i o u y ai ea ee ie io oo ou")
CODAS = re.split(" ", "     n r s t l m d ng nd nt rs ss st ll ck x")
SYLLABLES = [onset + vowel + coda for onset in ONSETS for vowel in VOWELS for coda in CODAS]
EPOCH = 1_600_000_000


def make(root: Path, count: int, seed: int) -> None:
    """Write `count` notes below `root`, in nested folders of about forty."""
    chance = random.Random(seed)
    words = vocabulary(chance)
    weights = list(accumulate(1 / (rank + 2.7) for rank in range(WORDS)))
    folder = root
    for number in range(count):
        if number % PER_FOLDER == 0:
            folder = _folder(root, number // PER_FOLDER, words)
            folder.mkdir(parents=True, exist_ok=True)
        name = f"{' '.join(_pick(chance, words, weights, 2)).capitalize()} {number}.md"
        path = folder / name
        path.write_bytes(_note(chance, words, weights).encode())
        when = EPOCH + chance.randrange(150_000_000)
        os.utime(path, (when, when))


def vocabulary(chance: random.Random) -> list[str]:
    """Frequent words come first and are short, as in a language."""
    found: dict[str, None] = {}
    while len(found) < WORDS:
        length = 1 + min(2, len(found) // 4000) + chance.randrange(2)
        found["".join(chance.choices(SYLLABLES, k=length))] = None
    return list(found)


def _pick(
    chance: random.Random, words: list[str], weights: list[float], count: int
) -> list[str]:
    top = weights[-1]
    draw = chance.random
    return [words[bisect(weights, draw() * top)] for _ in range(count)]


def _folder(root: Path, number: int, words: list[str]) -> Path:
    return (
        root
        / words[100 + number % 23]
        / words[200 + number // 23 % 17]
        / f"{words[300 + number % 97]} {number}"
    )


def _note(chance: random.Random, words: list[str], weights: list[float]) -> str:
    length = int(300 * 20 ** (chance.random() ** 1.5))
    text = _pick(chance, words, weights, max(8, length // 7))
    if chance.random() < 0.15:
        text.insert(chance.randrange(len(text)), chance.choice(PASSAGES))
    if chance.random() < 0.3:
        text.insert(
            chance.randrange(len(text)), f"[[{words[chance.randrange(2000)].capitalize()}]]"
        )
    lines = [" ".join(text[start : start + 14]) for start in range(0, len(text), 14)]
    body = f"# {lines[0]}\n\n" + "\n".join(
        f"- [ ] {line}" if number % 9 == 4 else f"{line}.\n" if number % 5 == 4 else line
        for number, line in enumerate(lines[1:])
    )
    note = (
        f"---\n{_frontmatter(chance, words)}---\n{body}\n"
        if chance.random() < 0.9
        else body + "\n"
    )
    return note.replace("\n", "\r\n") if chance.random() < 0.05 else note


def _frontmatter(chance: random.Random, words: list[str]) -> str:
    lines = [
        f"status: {chance.choice(STATUSES)}",
        f"created: 20{chance.randrange(18, 27)}-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02}",
        f"priority: {chance.randrange(1, 6)}",
        "tags:",
        *(f"  - {words[chance.randrange(400)]}" for _ in range(chance.randrange(1, 4))),
    ]
    if chance.random() < 0.2:
        lines.append(
            f"aliases: [{words[chance.randrange(WORDS)]}, {words[chance.randrange(WORDS)]}]"
        )
    return "\n".join(lines) + "\n"
