import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskhand import errors
from deskhand.errors import (
    DeskError,
    FieldProblem,
    InvalidInput,
    error_response,
    mcp_error,
    printable,
)
from tests.requirements import requirement


def every_error() -> list[type[DeskError]]:
    found, todo = [], [DeskError]
    while todo:
        kind = todo.pop()
        found.append(kind)
        todo += kind.__subclasses__()
    return sorted(found, key=lambda kind: kind.__name__)


@requirement("errors:two-forms")
@pytest.mark.parametrize("kind", every_error())
def test_every_error_has_a_code_of_each_seed_and_an_exit_code(
    kind: type[DeskError],
) -> None:
    assert kind.code in get_args(errors.MCPErrorCode)
    assert kind.error_type in get_args(errors.ErrorType)
    assert 1 <= kind.exit_code <= 8


@requirement("errors:two-forms")
def test_the_two_wire_forms_of_a_validation_error() -> None:
    error = InvalidInput(
        "Task creation failed due to invalid input",
        fields=[
            FieldProblem(
                "title",
                "Title cannot be empty",
                "",
                "Provide a task title (1-200 characters)",
            )
        ],
    )
    field = {
        "field": "title",
        "message": "Title cannot be empty",
        "received_value": "",
        "suggestion": "Provide a task title (1-200 characters)",
    }

    assert mcp_error(error) == {
        "error": "parse_error",
        "message": "Task creation failed due to invalid input",
        "details": {"fields": [field]},
    }
    assert error_response(error) == {
        "error_type": "validation_error",
        "message": "Task creation failed due to invalid input",
        "details": {"fields": [field]},
        "suggestions": ["Provide a task title (1-200 characters)"],
    }


def test_hint_and_retryability_reach_the_caller() -> None:
    error = errors.Unavailable("down", hint="try again")

    assert mcp_error(error)["details"] == {"hint": "try again", "retryable": True}
    assert error_response(error)["suggestions"] == ["try again"]


def test_the_docstring_draws_the_whole_tree() -> None:
    assert errors.__doc__ is not None
    # A server may put an error into its seed's words; that is a form of one of these, not another one.
    tree = [kind.__name__ for kind in every_error() if kind.__module__ == errors.__name__]
    assert [name for name in tree if name not in errors.__doc__] == []


@given(
    st.text(st.characters(codec=None, categories=["L", "Cs", "Cc"]))
    | st.integers()
    | st.binary()
)
def test_whatever_came_can_be_shown(value: object) -> None:
    assert json.dumps(printable(value)).encode()
    printable(value).encode()
