"""Text whose lines a mail program broke for the way alone (RFC 3676, `format=flowed`), as it was typed."""

SIGNATURE = "-- "


def join_lines(text: str, *, delete_space: bool) -> str:
    """A line that ends in a space goes on in the next one, where that is quoted as deep.

    A space at a line's beginning was put there for the way. With `delete_space` the one at its end was too.
    """
    paragraphs: list[list[str]] = []
    goes_on = False
    depth_before = 0
    for line in text.split("\n"):
        rest = line.lstrip(">")
        depth = len(line) - len(rest)
        rest = rest.removeprefix(" ")
        if not goes_on or depth != depth_before or rest == SIGNATURE:
            marks = ">" * depth
            paragraphs.append([f"{marks} " if marks and rest else marks])
        goes_on = rest.endswith(" ") and rest != SIGNATURE
        depth_before = depth
        if goes_on and delete_space:
            rest = rest[:-1]
        paragraphs[-1].append(rest)
    return "\n".join(map("".join, paragraphs))
