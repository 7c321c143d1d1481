"""What a request says: at which desk it is, which number or text it carries, what was just done."""

from collections.abc import Mapping
from urllib.parse import urlencode

from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.datastructures import FormData
from starlette.requests import Request

from deskhand.app import Desk


class _Number(IntegerConvertor):
    """A number in the path of a page, `{id:number}`: of a longer one there is no page, and none can be read."""

    regex = "[0-9]{1,18}"


register_url_convertor("number", _Number())


def desk_of(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


def number_in(request: Request, name: str, *, digits: int) -> int | None:
    """A number of the address; None where it is missing, longer, or something else."""
    return read_number(request.query_params.get(name, ""), digits=digits)


def read_number(text: str, *, digits: int) -> int | None:
    """The number; None where the text is empty, longer, or something else."""
    if text.isascii() and text.isdigit() and len(text) <= digits:
        return int(text)
    return None


def text_in(form: FormData, name: str) -> str:
    """A text of the form; empty where it is missing or a file."""
    given = form.get(name)
    if isinstance(given, str):
        return given
    return ""


def done_in(request: Request, sentences: Mapping[str, str]) -> str | None:
    """What was done before this page was shown, as a sentence."""
    return sentences.get(request.query_params.get("done", ""))


def next_page(
    path: str, kept: Mapping[str, object], name: str, start: object
) -> str | None:
    """The address of the same list from `start` on; None where nothing follows."""
    if not start:
        return None
    return f"{path}?{urlencode({**kept, name: start})}"
