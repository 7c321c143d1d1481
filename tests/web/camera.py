"""A camera that is not ours (Debian's zbar) reads a code from a picture of the page or of a terminal."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ZBAR = shutil.which("zbarimg")
needs_camera = pytest.mark.skipif(ZBAR is None, reason="zbar-tools is not installed")
_PIXELS = 6
"""For one module of the code."""
_COLOURS: dict[str, tuple[int, int] | None] = {"97;40": (255, 0), "0": None}


def read_code(picture: Path) -> str:
    assert ZBAR
    command = [ZBAR, "--quiet", "--raw", "--nodbus", str(picture)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip()


def draw_terminal(written: str, picture: Path, ink: int, ground: int) -> Path:
    """What a terminal shows that writes with this ink on this ground, where nobody asks it for other colours."""
    own = (ink, ground)
    rows: list[list[int]] = []
    for line in written.splitlines():
        upper: list[int] = []
        lower: list[int] = []
        now = own
        for colours, sign in re.findall(r"\x1b\[([\d;]*)m|(.)", line):
            if colours:
                now = _COLOURS[colours] or own
                continue
            upper.append(now[sign not in "█▀"])
            lower.append(now[sign not in "█▄"])
        rows += [upper, lower]
    width = max(len(row) for row in rows)
    beside = 3 * [ground]
    pixels = bytearray()
    for row in rows:
        wide = [*beside, *row, *[ground] * (width - len(row)), *beside]
        pixels += bytes(value for value in wide for _ in range(_PIXELS)) * _PIXELS
    size = f"{(width + 6) * _PIXELS} {len(rows) * _PIXELS}"
    picture.write_bytes(f"P5 {size} 255\n".encode() + pixels)
    return picture
