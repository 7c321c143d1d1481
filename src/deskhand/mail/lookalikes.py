"""Addresses and domains that could pass for others: by letters that look alike, or one letter apart. Pure."""

import unicodedata

import idna

from deskhand import unseen


def poses_as_latin(domain: str) -> bool:
    """Whether a label in another alphabet has no letter that tells it from a plain one."""
    labels = [label for label in domain.split(".") if not label.isascii()]
    foreign = [
        each
        for each in labels
        if not any("LATIN" in unicodedata.name(char, "") for char in each)
    ]
    return any(skeleton(label).isascii() for label in foreign)


def find_imitated(domain: str) -> str | None:
    """The plain domain that a reader takes this one for, whose letters are of another
    alphabet; None for any other."""
    labels = readable(domain.casefold()).split(".")
    shown = [unseen.reads_as(label) for label in labels]
    poses = any(
        plain.isascii() and any(_is_foreign(char) for char in label)
        for label, plain in zip(labels, shown, strict=True)
    )
    return ".".join(shown) if poses else None


def _is_foreign(char: str) -> bool:
    return char.isalpha() and "LATIN" not in unicodedata.name(char, "")


def is_alike(one: str, other: str) -> bool:
    """Whether an address could pass for another: by its letters, or by the same name at a
    domain that looks alike."""
    if one.lower() == other.lower():
        return False
    same_name = one.rpartition("@")[0].lower() == other.rpartition("@")[0].lower()
    return is_twin(one, other) or (
        same_name and looks_like(readable(domain_of(one)), readable(domain_of(other)))
    )


def is_twin(one: str, other: str) -> bool:
    return one.lower() != other.lower() and skeleton(one) == skeleton(other)


def domain_of(address: str) -> str:
    return address.rpartition("@")[2].casefold()


def readable(domain: str) -> str:
    try:
        return idna.decode(domain)
    except idna.IDNAError:
        return domain


def count_scripts(domain: str) -> int:
    """How many alphabets a label mixes, at the most."""
    return max(
        len(
            {
                unicodedata.name(char, "?").partition(" ")[0]
                for char in label
                if char.isalpha()
            }
        )
        for label in domain.split(".")
    )


def looks_like(one: str, other: str) -> bool:
    if one.endswith(f".{other}") or other.endswith(f".{one}"):
        return False
    return skeleton(one) == skeleton(other) or (len(other) > 6 and _one_apart(one, other))


def skeleton(domain: str) -> str:
    plain = "".join(
        char
        for char in unicodedata.normalize("NFKD", domain.casefold())
        if not unicodedata.combining(char)
    )
    return (
        plain.translate(unseen.ALIKE)
        .replace("rn", "m")
        .replace("vv", "w")
        .replace("i", "l")
    )


def _one_apart(one: str, other: str) -> bool:
    """One letter more, less, other, or two neighbours changed over."""
    short, long = sorted((one, other), key=len)
    start = next((at for at, char in enumerate(short) if char != long[at]), len(short))
    if len(long) - len(short) == 1:
        return short[start:] == long[start + 1 :]
    if len(short) != len(long):
        return False
    swapped = short[start + 1 : start + 2] + short[start : start + 1] + short[start + 2 :]
    return short[start + 1 :] == long[start + 1 :] or swapped == long[start:]
