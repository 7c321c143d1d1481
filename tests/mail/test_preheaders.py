"""What newsletters hide is no alarm; an instruction that is hidden in the same way is one."""

import pytest

from deskhand.mail import mime
from deskhand.mail.mime import Parsed
from tests.mail.newsletters import INSTRUCTIONS, PREHEADERS, newsletter
from tests.requirements import requirement

_SLOT = '<div style="display:none;max-height:0;overflow:hidden">{}</div>'


def read(page: str, kind: str = "text/html") -> Parsed:
    return mime.parse(f"Content-Type: {kind}; charset=utf-8\n\n{page}".encode())


@requirement("mail:preheader")
@pytest.mark.parametrize("sender", PREHEADERS)
def test_an_ordinary_preheader_is_no_alarm(sender: str) -> None:
    mail = read(newsletter(PREHEADERS[sender]))

    assert mail.body.startswith("Hello Alex")
    assert mail.alarms == ()


@requirement("mail:preheader")
@pytest.mark.parametrize("text", INSTRUCTIONS)
def test_an_instruction_that_is_hidden_as_a_preheader_is_an_alarm(text: str) -> None:
    escaped = text.replace("<", "&lt;")
    for hidden in (
        escaped,
        f"Our sale starts now. {escaped}",
        "&zwnj;&nbsp;" * 50 + escaped,
    ):
        assert any(
            "hidden text removed" in each
            for each in read(newsletter(_SLOT.format(hidden))).alarms
        )


@requirement("mail:preheader")
def test_what_is_hidden_behind_the_first_words_or_in_unseen_characters_is_an_alarm() -> (
    None
):
    behind = newsletter("").replace(
        "<h1>", "<h1>Hi</h1><p style='display:none'>Friday suits me</p><h1>"
    )
    tags = "".join(chr(0xE0000 + ord(char)) for char in "hello")
    bits = "".join(
        "\u200b\u200c"[int(bit)] for bit in "0110100001100101011011000110110001101111"
    )

    for page in (
        behind,
        newsletter(_SLOT.format(f"Sale{tags}")),
        newsletter(_SLOT.format(f"Sale{bits}")),
    ):
        assert read(page).alarms
    assert read(f"Sale{bits} on", "text/plain").alarms
    assert read(f"Sale{tags} on", "text/plain").alarms
    assert read("Sale on " + "\u034f \u200c \u00ad " * 50, "text/plain").alarms == ()
