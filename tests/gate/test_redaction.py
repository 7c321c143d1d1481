"""No body, secret or whole address in the vault's log, in the chained record or in the process's log."""

import logging

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deskhand import audit
from tests.gate.site import Site
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

# Each begins with letters that stand in no word of ours: a log may well say "error:".
PLAIN = st.text("abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+/=?^_`{|}~-", min_size=6, max_size=20).map("qx{}".format)
STRANGE = st.text("abcdefghijklmnopqrstuvwxyz äöü.,;:()<>[]", min_size=6, max_size=20).map('"qx{}"'.format)
FORMS = st.sampled_from(["{}", "Ann <{}>", "{}, {}", "ann@example.com <{}>", "friends: {};", "{}\nBcc: {}", " {}"])
SECRET = "the-words-of-the-body"


@requirement("audit:redacted")
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(local=st.one_of(PLAIN, STRANGE), form=FORMS, tool=st.sampled_from(["send_email", "draft_email"]))
async def test_no_log_holds_a_body_or_a_whole_address(
    site: Site, caplog: pytest.LogCaptureFixture, local: str, form: str, tool: str
) -> None:
    address = f"{local}@example.org"
    caplog.set_level(logging.DEBUG, "deskhand")
    letter = {"to": form.replace("{}", address), "subject": f"For {address} only", "body": f"{SECRET} {address}"}
    site.write(to=address)
    local_mail = {"DESKHAND_MAIL": "local", "DESKHAND_ADDRESS": "me@example.com", "DESKHAND_MAX_SENDS": "1000"}
    async with site.client("email", **local_mail) as client:
        await client.call_tool(tool, letter)
        await client.call_tool(tool, letter | {"secret": SECRET})
        await client.call_tool("search_email", {"query": f"to:{address}"})
        await client.call_tool("reply_email", {"thread_id": address, "message_id": address, "body": SECRET})

    desk = site.desk()
    chained = [entry.model_dump_json() for _, entry in desk.store.write_sync(lambda tx: audit.entries(tx, limit=4))]
    desk.close()
    logged = [str(vars(record)) for record in caplog.records if record.name.startswith("deskhand")]
    lines = [str(line) for line in site.log()[-4:]]
    assert len(chained) == len(lines) == 4
    for line in (*chained, *lines, *logged):
        assert SECRET not in line
        assert address not in line
        assert local.strip('"') not in line
