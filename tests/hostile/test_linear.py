"""A text from outside costs time in proportion to its length, wherever it is read."""

import pytest

from tests.hostile.shapes import READERS, failures
from tests.requirements import requirement

SIZE = 8_000
"""Enough to tell; `run.py torture hostile` takes more."""


@requirement("hostile:linear")
@pytest.mark.parametrize("name", READERS)
def test_a_text_twice_as_long_takes_about_twice_the_time(name: str) -> None:
    assert [*failures(name, SIZE)] == []
