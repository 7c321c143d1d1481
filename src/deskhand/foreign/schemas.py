"""Whether a value is what a stranger's JSON schema allows: bounded in time, whatever the schema says.

Its patterns are matched by a machine that takes linear time. Where a schema names itself without end, names another
place, or cannot be understood, nothing is held against the value: the server checks it again.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Any

from pydantic import StringConstraints, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from deskhand.errors import printable

MOST_STEPS = 100_000
"""So much is held against each other; an honest schema with an honest value needs a small part of it."""
LONGEST_LIST = 10_000
Check = Callable[[Any, Any, Any, Any], Iterator[Any] | None]


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> TypeAdapter[str]:
    """Raises ValueError for one that cannot be matched in linear time, such as one that looks back."""
    try:
        return TypeAdapter(Annotated[str, StringConstraints(pattern=pattern, strict=True)])
    except SchemaError as error:
        why = str(error).rpartition("error: ")[2].strip()
        raise ValueError(f"no pattern that is matched here: {why}") from error


def is_match(pattern: TypeAdapter[str], text: object) -> bool:
    try:
        pattern.validate_python(text)
    except ValidationError:
        return False
    return True


def find_problem(shape: Mapping[str, Any], value: object) -> str | None:
    """What the schema does not allow; None where it allows the value, or cannot be understood."""
    from jsonschema import SchemaError as BadSchema
    from jsonschema.exceptions import UnknownType, best_match
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        found = best_match(_validator()(shape, registry=Registry()).iter_errors(value))
    except (
        BadSchema,
        UnknownType,
        Unresolvable,
        ArithmeticError,
        RecursionError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
    ):
        return None
    if found is None:
        return None
    place = ".".join(str(part) for part in found.absolute_path)
    return printable(f"{place}: {found.message}" if place else found.message, 300)


def _validator() -> Any:
    """Reaches nothing but the schema itself, and takes no more steps than an honest one needs."""
    from jsonschema import Draft202012Validator, validators

    more = Draft202012Validator.VALIDATORS["additionalProperties"]
    left = MOST_STEPS

    def count(check: Check) -> Check:
        def run(validator: Any, said: Any, instance: Any, schema: Any) -> Any:
            nonlocal left
            left -= 1 + _size(said) + _size(instance) // 100
            if left < 0:
                raise ValueError("the schema has no end")
            return check(validator, said, instance, schema)

        return run

    def check_more(
        validator: Any, allowed: Any, instance: Any, schema: Any
    ) -> Iterator[Any]:
        # Its patterns would be matched by a machine that may take for ever.
        if "patternProperties" in schema:
            return iter(())
        return iter(more(validator, allowed, instance, schema) or ())

    own = {
        "pattern": _check_pattern,
        "patternProperties": _skip,
        "additionalProperties": check_more,
        "unevaluatedProperties": _skip,
        "unevaluatedItems": _skip,
        "uniqueItems": _check_unique,
    }
    checks = {**Draft202012Validator.VALIDATORS, **own}
    return validators.extend(
        Draft202012Validator, {word: count(check) for word, check in checks.items()}
    )


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | list | dict) else 0


def _check_pattern(
    validator: Any, pattern: Any, instance: Any, schema: Any
) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError as Problem

    del validator, schema
    if isinstance(instance, str) and not is_match(compile_pattern(pattern), instance):
        yield Problem(
            f"{printable(instance, 60)!r} does not match {printable(pattern, 60)!r}"
        )


def _check_unique(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """In linear time: each item by its text. A list that is very long is left to the server."""
    from jsonschema.exceptions import ValidationError as Problem

    del validator, schema
    if not wanted or not isinstance(instance, list) or len(instance) > LONGEST_LIST:
        return
    if len({json.dumps(each, sort_keys=True) for each in instance}) < len(instance):
        yield Problem("an item stands there twice")


def _skip(*_: Any) -> Iterator[Any]:
    return iter(())
