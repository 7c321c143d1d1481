"""Several mail accounts at one desk: a local one, a Gmail and an IMAP account."""

import asyncio
import email.policy
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email import message_from_bytes
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio import Event, fail_after
from anyio.lowlevel import checkpoint
from mcp import Client

from deskhand import tokens
from deskhand.app import Desk
from deskhand.clock import utc_now
from deskhand.config import MailAccount, load
from deskhand.errors import BadConfig, DeskError, Exists, ProviderDown
from deskhand.gate import NotApproved
from deskhand.gate.actions import SendEmail
from deskhand.mail import MailSummary
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.mail.mailboxes import Mailboxes, MailView, Patience, viewing
from deskhand.orchestrator import first_look
from deskhand.orchestrator.loop import Orchestrator
from deskhand.servers.desk import desk_server
from deskhand.servers.gmail import gmail_server
from deskhand.setup.init import plan_account
from deskhand.web.site import site
from tests.home import Home
from tests.mail.dovecot import PASSWORD, Dovecot, Relay
from tests.mail.gmail_double import GmailDouble, Status
from tests.mail.letters import letter
from tests.requirements import requirement
from tests.transports import http_client, http_server
from tests.web.person import served, signed_in

pytestmark = pytest.mark.anyio

HELLO = {
    "to": "ann@example.org",
    "subject": "Minutes",
    "body": "Dear Ann,\n\nsee you at ten.\n",
}


@dataclass
class Accounts:
    home: Home
    google: GmailDouble
    work: Dovecot
    relay: Relay

    def write_config(self, *, without: str = "", more: str = "") -> None:
        tables = {
            "google": f'kind = "gmail"\ngmail_credentials = "{self.google.credentials(self.home.path / "g.json")}"\n'
            f'gmail_api_endpoint = "{self.google.origin}"\n',
            "work": f'kind = "imap"\naddress = "me@work.example"\naliases = ["sales@work.example"]\n'
            'signature = "Me\\nWork Inc. – 1 Street"\n'
            f'imap_url = "imap://{self.work.user}:{PASSWORD}@127.0.0.1:{self.work.port}"\n'
            f'smtp_url = "smtp://127.0.0.1:{self.relay.port}"\n',
        }
        written = [
            f'[[mail.accounts]]\nname = "{name}"\n{table}'
            for name, table in tables.items()
            if name != without
        ]
        text = "\n".join(
            ['[mail]\nkind = "local"\naddress = "me@home.example"\n', *written, more]
        )
        (self.home.path / "config.toml").write_text(text)

    @asynccontextmanager
    async def desk(self) -> AsyncIterator[Desk]:
        made = Desk(load(self.home.environment).settings)
        yield made
        await made.close_mailbox()
        made.close()

    def approve_all(self) -> None:
        approved = self.home.vault / "Approved"
        approved.mkdir(exist_ok=True)
        for file in (self.home.vault / "Pending_Approval").glob("*.md"):
            file.rename(approved / file.name)

    async def sent(self, desk: Desk) -> dict[str, list[str]]:
        """The senders of what has left, by account."""
        main = desk.account_mailbox("main")
        return {
            "main": [mail.sender for mail in await main.search("in:sent", 50)],
            "google": [
                str(message_from_bytes(raw)["From"]) for raw in self.google.delivered
            ],
            "work": [
                str(message_from_bytes(raw)["From"]) for _, raw in self.relay.delivered
            ],
        }


@pytest.fixture
def accounts(home: Home) -> Iterator[Accounts]:
    home.path.mkdir()
    with GmailDouble() as google, Dovecot() as work, Relay(work) as relay:
        google.account.address = "me@gmail.example"
        made = Accounts(home, google, work, relay)
        made.write_config()
        google.account.deliver(
            letter(subject="From Google", to="me@gmail.example", message_id="<g@x>")
        )
        work.deliver(
            letter(
                subject="From work",
                to="me@work.example",
                message_id="<w@x>",
                attachment="list.txt",
            )
        )
        yield made


@pytest.fixture
async def desk(accounts: Accounts) -> AsyncIterator[Desk]:
    async with accounts.desk() as made:
        main = made.account_mailbox("main")
        assert isinstance(main, LocalMailbox)
        mail = letter(subject="From home", to="me@home.example", message_id="<h@x>")
        await main.receive([Incoming(mail, seen=False, dated=made.now())])
        yield made


@pytest.fixture
async def client(desk: Desk) -> AsyncIterator[Client]:
    async with Client(desk_server(desk), mode="2026-07-28") as client:
        yield client


async def found(client: Client, query: str = "", **more: Any) -> dict[str, dict[str, Any]]:
    """What a search gives, by the subject."""
    result = await client.call_tool(
        "search_email", {"query": query, "max_results": 50} | more
    )
    assert not result.is_error, result.content
    return {each["subject"]: each for each in result.structured_content["emails"]}


async def call(client: Client, name: str, /, **arguments: Any) -> Any:
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def refused(client: Client, name: str, /, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(name, arguments)
    assert result.is_error, result.content
    error: dict[str, Any] = json.loads(result.content[0].text)
    return error


@requirement("accounts:one-view")
async def test_reads_go_over_all_accounts_and_say_whose_a_mail_is(
    client: Client, accounts: Accounts
) -> None:
    mails = await found(client)
    only = await found(client, account="work")
    work = mails["From work"]["message_id"]
    full = await call(client, "get_email", message_id=work)
    thread = await call(client, "get_thread", thread_id=mails["From work"]["thread_id"])
    text = await call(client, "get_attachment", message_id=work, name="list.txt")
    mail = (await client.read_resource(f"mail://{work}")).contents[0].text
    listed = await client.list_resources(cursor="mail")
    await call(
        client,
        "add_label",
        message_id=mails["From Google"]["message_id"],
        label_name="Seen",
    )
    everything = [each["message_id"] for each in mails.values()]
    read = await call(client, "update_emails", do="read", ids=everything)
    elsewhere = await refused(client, "get_email", message_id=work, account="google")
    unknown = await refused(client, "search_email", query="", account="nobody")
    gone = await refused(client, "get_email", message_id="nobody~1")
    assert (gone["error"], gone["details"].get("retryable")) == ("not_found", None)

    assert {subject: each["account"] for subject, each in mails.items()} == {
        "From home": "main",
        "From Google": "google",
        "From work": "work",
    }
    assert {
        each["message_id"].partition("~")[0]
        for each in (mails["From Google"], mails["From work"])
    } == {
        "google",
        "work",
    }
    assert "~" not in mails["From home"]["message_id"]
    assert only == {"From work": mails["From work"]}
    assert (full["subject"], full["account"], full["attachment_names"]) == (
        "From work",
        "work",
        ["list.txt"],
    )
    assert [each["id"] for each in thread["mails"]] == [work]
    assert text["name"] == "list.txt"
    assert "Subject: From work" in mail
    assert len(listed.resources) == 3
    assert (read["count"], read["done"]) == (3, True)
    assert await found(client, "is:unread") == {}
    assert (elsewhere["error"], unknown["error"]) == ("not_found", "parse_error")
    assert "main, google, work" in json.dumps(unknown)
    assert "no mail account nobody" in gone["message"]


@requirement("accounts:sender")
async def test_a_mail_leaves_from_the_account_that_was_meant_and_no_other(
    client: Client, desk: Desk, accounts: Accounts
) -> None:
    mails = await found(client)
    work = {
        "thread_id": mails["From work"]["thread_id"],
        "message_id": mails["From work"]["message_id"],
    }
    calls: list[tuple[str, dict[str, Any]]] = [
        ("send_email", HELLO),
        ("send_email", HELLO | {"account": "google"}),
        ("reply_email", work | {"body": "Yes.\n"}),
    ]
    for name, arguments in calls:
        await refused(client, name, **arguments)
    pending = (await call(client, "pending_actions"))["actions"]
    of_work = (await call(client, "pending_actions", account="work"))["actions"]
    files = "".join(
        file.read_text() for file in (accounts.home.vault / "Pending_Approval").glob("*.md")
    )
    mixed = await refused(client, "reply_email", **work, body="Yes.\n", account="google")
    accounts.approve_all()
    answers = [await call(client, name, **arguments) for name, arguments in calls]
    draft = await call(client, "draft_email", **HELLO, account="work")

    assert [each["account"] for each in pending] == [
        "me@home.example",
        "me@gmail.example",
        "me@work.example",
    ]
    assert [each["account"] for each in of_work] == ["me@work.example"]
    assert all(f"from {each['account']}" in files.replace("\\", "") for each in pending)
    assert "in the account work" in mixed["message"] or "not found" in mixed["message"]
    assert [each["from_address"] for each in answers] == [
        each["account"] for each in pending
    ]
    assert answers[2]["message_id"].startswith("work~")
    assert await accounts.sent(desk) == {
        "main": ["me@home.example"],
        "google": ["me@gmail.example"],
        "work": ["me@work.example"],
    }
    assert "In-Reply-To: <w@x>" in accounts.relay.delivered[0][1].decode()
    assert draft["from_address"] == "me@work.example"
    assert len(accounts.work.raws("Drafts")) == 1


@requirement("accounts:sender")
async def test_what_was_approved_for_an_account_that_has_gone_waits_for_it(
    accounts: Accounts,
) -> None:
    async with (
        accounts.desk() as desk,
        Client(desk_server(desk), mode="2026-07-28") as client,
    ):
        await refused(client, "send_email", **HELLO, account="work")
        ((waits,), _) = await desk.waiting.requests()
    accounts.write_config(without="work")
    accounts.approve_all()
    async with accounts.desk() as desk:
        await desk.gate.release(waits.id, "desk")
        kept = await desk.gate.find(waits.id)
        nothing = await accounts.sent(desk)
    accounts.write_config()
    async with accounts.desk() as desk:
        await desk.gate.release(waits.id, "desk")
        left = await accounts.sent(desk)

    assert kept.state == "approved"
    assert "no mail account me@work.example" in (kept.note or "")
    assert nothing == {"main": [], "google": [], "work": []}
    assert left == {"main": [], "google": [], "work": ["me@work.example"]}


@requirement("accounts:sender")
@pytest.mark.parametrize("exchanged", [False, True], ids=["renamed", "exchanged"])
async def test_an_answer_leaves_from_its_account_whatever_that_is_called_by_now(
    accounts: Accounts, home: Home, *, exchanged: bool
) -> None:
    async with (
        accounts.desk() as desk,
        Client(desk_server(desk), mode="2026-07-28") as client,
    ):
        mails = await found(client)
        for name in ("work", "Google"):
            mail = mails[f"From {name}"]
            place = {key: mail[key] for key in ("thread_id", "message_id")}
            await refused(client, "reply_email", **place, body="Yes.\n")
        ((*waiting,), _) = await desk.waiting.requests()
    names = {'"work"': '"office"', '"google"': '"private"'}
    if exchanged:
        names = {'"work"': '"google"', '"google"': '"work"'}
    text = (home.path / "config.toml").read_text()
    (home.path / "config.toml").write_text(
        re.sub('(?<=name = )"(?:work|google)"', lambda each: names[each[0]], text)
    )
    accounts.approve_all()
    async with accounts.desk() as desk:
        for each in waiting:
            await desk.gate.release(each.id, "desk")
        left = await accounts.sent(desk)

    assert left == {"main": [], "google": ["me@gmail.example"], "work": ["me@work.example"]}
    assert b"In-Reply-To: <w@x>" in accounts.relay.delivered[0][1]


@requirement("accounts:ids")
async def test_what_a_desk_of_one_account_asked_goes_on_when_it_gets_others(
    accounts: Accounts, home: Home
) -> None:
    several = (home.path / "config.toml").read_text()
    (home.path / "config.toml").write_text(
        '[mail]\nkind = "local"\naddress = "me@home.example"\n'
    )
    async with (
        accounts.desk() as desk,
        Client(desk_server(desk), mode="2026-07-28") as client,
    ):
        assert isinstance(desk.mailbox, LocalMailbox)
        await desk.mailbox.receive(
            [Incoming(letter(subject="From home", message_id="<h@x>"), False)]
        )
        (mail,) = (await found(client)).values()
        answer = {
            "thread_id": mail["thread_id"],
            "message_id": mail["message_id"],
            "body": "Yes.\n",
        }
        await refused(client, "reply_email", **answer)
    (home.path / "config.toml").write_text(several)
    accounts.approve_all()
    async with (
        accounts.desk() as desk,
        Client(desk_server(desk), mode="2026-07-28") as client,
    ):
        sent = await call(client, "reply_email", **answer)
        again = await call(client, "get_email", message_id=mail["message_id"])

    assert "account" not in mail
    assert (sent["from_address"], again["account"]) == ("me@home.example", "main")


@requirement("accounts:down")
async def test_an_account_that_is_down_stops_no_other_and_is_named(
    client: Client, desk: Desk, accounts: Accounts
) -> None:
    good = (accounts.home.path / "g.json").read_text()
    (accounts.home.path / "g.json").write_text(
        good.replace(accounts.google.origin, "http://127.0.0.1:1")
    )
    result = await client.call_tool("search_email", {"query": ""})
    reply = await refused(client, "send_email", **HELLO, account="work")
    alone = await refused(client, "search_email", query="", account="google")
    down = [part.name for part in desk.parts.down]
    (accounts.home.path / "g.json").write_text(good)
    back = await found(client)

    assert {each["subject"] for each in result.structured_content["emails"]} == {
        "From home",
        "From work",
    }
    assert [each.text for each in result.content[1:]] == [result.content[1].text]
    assert "google did not answer" in result.content[1].text
    assert reply["details"]["reason"] == "no_approval"
    assert alone["error"] != "parse_error"
    assert down == ["mail google"]
    assert len(back) == 3
    assert desk.parts.down == []


@requirement("accounts:down")
async def test_mails_of_several_accounts_are_changed_where_they_can_be_and_the_rest_is_named(
    client: Client, desk: Desk, accounts: Accounts
) -> None:
    mails = await found(client)
    ids = [each["message_id"] for each in mails.values()]
    accounts.google.plan("messages.batchModify", Status(403))
    partly = await refused(client, "update_emails", do="star", ids=ids)
    starred = await found(client, "is:starred")
    for step in partly["details"]["undo"]:
        await call(client, "update_emails", **step)
    taken_back = await found(client, "is:starred")
    alone = await refused(client, "update_emails", do="star", ids=ids, account="google")
    whole = await call(client, "update_emails", do="star", ids=ids)

    assert set(starred) == {"From home", "From work"}
    assert "2 mails are changed" in partly["message"]
    assert "google" in partly["message"]
    assert partly["details"]["changed"] == 2
    assert taken_back == {}
    assert alone["error"] == "not_found"
    assert whole["count"] == 3


@requirement("accounts:down")
async def test_a_change_on_the_page_that_one_account_refuses_can_be_undone_where_it_was_done(
    desk: Desk, accounts: Accounts
) -> None:
    ids = [mail.id for mail in await desk.mailbox.search("", 10)]
    chosen: dict[str, Any] = {"do": "star", "mail": ids}
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        accounts.google.plan("messages.batchModify", Status(403))
        partly = await person.sends("/mail/change", chosen)
        starred = await desk.mailbox.search("is:starred", 10)
        undone = await person.sends("/mail/undo", at="/mail")
        left = await desk.mailbox.search("is:starred", 10)

    assert "2 mails are changed" in partly.text
    assert len(starred) == 2
    assert undone.status_code == 303
    assert left == []


@requirement("accounts:one-view")
async def test_all_that_match_are_those_of_the_account_that_the_page_shows(
    desk: Desk, accounts: Accounts
) -> None:
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        page = await person.reads("/mail?q=in:inbox&account=work")
        form = _fields(page.text, "/mail/change") | {"do": "archive", "all": "1"}
        sure = await person.sends("/mail/change", form)
        done = await person.sends("/mail/change", _fields(sure.text, "/mail/change"))
        left = await desk.mailbox.search("in:inbox", 10)

    assert "<h1>Archive 1 mail?</h1>" in sure.text
    assert "me@work.example" in sure.text
    assert (
        done.headers["location"] == "/mail?q=in%3Ainbox&account=work&done=archive&count=1"
    )
    assert {mail.subject for mail in left} == {"From home", "From Google"}


def _fields(page: str, action: str) -> dict[str, str]:
    """What the form of this page would send without a word more."""
    form = page.partition(f'action="{action}"')[2].partition("</form>")[0]
    hidden = re.findall(r'<input type="hidden" name="(\w+)" value="(.*?)">', form)
    return {name: value for name, value in hidden if name != "form_token"}


@requirement("mail:reply-all")
async def test_an_own_address_that_was_told_once_is_known_while_its_account_does_not_answer(
    tmp_path: Path,
) -> None:
    class Telling(LocalMailbox):
        async def search(self, query: str, limit: int) -> list[MailSummary]:
            raise ProviderDown("it is in trouble")

    accounts = [
        MailAccount(name="a", kind="local", address="a@x.de"),
        MailAccount.model_construct(name="b", kind="gmail", address=None),
    ]
    mailboxes = Mailboxes(
        accounts,
        accounts[0],
        lambda account: Telling(
            tmp_path / f"{account.name}.db", f"{account.name}@x.de", utc_now
        ),
        lambda _name, _error: None,
        Patience(full=0.3, brief=0, rest=60),
    )
    first = await mailboxes.ask_untold()
    with pytest.raises(ProviderDown):
        await mailboxes.search("", 5)
    while_slow = await mailboxes.ask_untold()
    await mailboxes.close()

    assert (set(first), set(while_slow)) == ({"b@x.de"}, {"b@x.de"})


class _Hanging(LocalMailbox):
    """Takes a question and does not answer it; later it takes a moment."""

    hangs = True

    async def search(self, query: str, limit: int) -> list[MailSummary]:
        if self.hangs:
            await Event().wait()
        for _ in range(3):
            await checkpoint()
        return await super().search(query, limit)


@requirement("accounts:down")
@pytest.mark.parametrize("rest", [60.0, 0.0], ids=["soon", "later"])
async def test_an_account_that_hangs_keeps_nobody_waiting_a_second_time(
    tmp_path: Path, rest: float
) -> None:
    accounts = [
        MailAccount(name=name, kind="local", address=f"{name}@x.de") for name in "ab"
    ]
    boxes = {
        "a": LocalMailbox(tmp_path / "a.db", "a@x.de", utc_now),
        "b": _Hanging(tmp_path / "b.db", "b@x.de", utc_now),
    }
    told: list[tuple[str, DeskError | None]] = []
    mailboxes = Mailboxes(
        accounts,
        accounts[0],
        lambda account: boxes[account.name],
        lambda name, error: told.append((name, error)),
        Patience(full=0.3, brief=0, rest=rest),
    )
    silent = []
    for hangs in (True, False):
        _Hanging.hangs = hangs
        with viewing(MailView()) as view:
            await mailboxes.search("", 10)
        silent.append(list(view.silent))
    await mailboxes.close()

    assert silent == [["b"], ["b"] if rest else []]
    # A caller's patience says nothing of the account, which may only be slow.
    assert [name for name, error in told if error is not None] == []


@requirement("accounts:scopes")
async def test_a_token_for_one_account_opens_no_other(
    accounts: Accounts, desk: Desk
) -> None:
    make = {
        "reads": ["mail:read:work"],
        "sends": ["mail:read", "mail:write:work"],
        "stranger": ["mail:write:other"],
    }
    secret = {
        name: desk.store.write_sync(
            partial(tokens.create, name=name, now=desk.now(), scopes=scopes)
        )
        for name, scopes in make.items()
    }
    main = desk.account_mailbox("main")
    (home,) = await main.search("", 5)
    with http_server(accounts.home, "desk") as address:
        async with http_client(address, secret["reads"], "2026-07-28") as client:
            seen = await found(client)
            resources = (await client.list_resources()).resources
            closed = await refused(client, "get_email", message_id=home.id)
            writes = await refused(client, "send_email", **HELLO)
            foreign = await refused(client, "search_email", query="", account="main")
        async with http_client(address, secret["sends"], "2026-07-28") as client:
            everything = await found(client)
            asks = await refused(client, "send_email", **HELLO)
            label = await refused(client, "add_label", message_id=home.id, label_name="X")
        async with http_client(address, secret["stranger"], "2026-07-28") as client:
            nothing = await refused(client, "search_email", query="")
    ((waits,), _) = await desk.waiting.requests()

    assert list(seen) == ["From work"]
    assert len(resources) == 1
    assert (closed["details"]["scope"], writes["details"]["scope"]) == (
        "mail:read:main",
        "mail:write",
    )
    assert foreign["error"] == "parse_error"
    assert "main" not in json.dumps(foreign["details"]["fields"][0]["suggestion"])
    assert len(everything) == 3
    assert asks["details"]["reason"] == "no_approval"
    assert waits.action.account == "me@work.example"
    assert label["error"] == "permission_denied"
    assert nothing["error"] == "permission_denied"


@requirement("accounts:scopes")
async def test_a_narrowed_server_on_a_desk_of_one_account_shows_nothing(
    accounts: Accounts,
) -> None:
    (accounts.home.path / "config.toml").write_text(
        '[mail]\nkind = "local"\naddress = "me@home.example"\n'
    )
    async with accounts.desk() as desk:
        server = gmail_server(desk)
        server.narrow(["mail:read:work"])
        async with Client(server, mode="2026-07-28") as client:
            closed = await refused(client, "list_emails", query="")
        server.narrow(["mail:read:main"])
        async with Client(server, mode="2026-07-28") as client:
            mine = await call(client, "list_emails", query="")

    assert closed["error"] == "permission_denied"
    assert mine == {"result": []}


@requirement("accounts:scopes")
async def test_a_text_that_was_read_for_one_client_is_not_told_to_another(
    accounts: Accounts, desk: Desk
) -> None:
    server = desk_server(desk)
    async with Client(server, mode="2026-07-28") as client:
        mail = (await found(client))["From work"]["message_id"]
        await call(client, "get_attachment", message_id=mail, name="list.txt")
        server.narrow(["mail:read:google", "notes:write"])
        closed = [
            await refused(client, "get_attachment", message_id=mail, name="list.txt"),
            await refused(
                client, "save_attachment", message_id=mail, name="list.txt", path="list.txt"
            ),
            await refused(client, "get_thread", thread_id=mail),
        ]

    assert [each["details"]["scope"] for each in closed] == ["mail:read:work"] * 3


@requirement("mail:reply-all")
async def test_an_answer_to_all_goes_to_no_account_of_ones_own(
    client: Client, desk: Desk, accounts: Accounts
) -> None:
    """Nobody wrote down the address of the Gmail account: it tells it itself."""
    named = "me@work.example, Me@Gmail.example, me@home.example, bob@b.example"
    accounts.work.deliver(letter(subject="To all", to=named, message_id="<a@x>"))
    mail = (await found(client))["To all"]
    place = {key: mail[key] for key in ("thread_id", "message_id")}
    await refused(client, "reply_email", **place, body="Yes.\n", all=True)
    ((waits,), _) = await desk.waiting.requests()

    assert (waits.action.to, waits.action.cc) == ("ann@example.org", "bob@b.example")


@requirement("accounts:signature")
async def test_a_signature_is_part_of_what_is_shown_approved_and_sent(
    client: Client, desk: Desk, accounts: Accounts
) -> None:
    accounts.work.deliver(
        letter(subject="To sales", to="Sales <Sales@work.example>", message_id="<s@x>")
    )
    mail = (await found(client))["To sales"]
    answer = {
        "thread_id": mail["thread_id"],
        "message_id": mail["message_id"],
        "body": "Yes.\n",
    }
    page = HELLO | {
        "body": "<!doctype html><html><body><p>Hello</p></body></html>",
        "account": "work",
    }
    await refused(client, "reply_email", **answer)
    ((waits,), _) = await desk.waiting.requests()
    card = await desk.waiting.card(waits.id)
    (file,) = (accounts.home.vault / "Pending_Approval").glob("*.md")
    shown = file.read_text()
    accounts.approve_all()
    sent = await call(client, "reply_email", **answer)
    again = await desk.gate.propose(SendEmail(**HELLO | {"body": card.body}), "test")
    async with Client(gmail_server(desk), mode="2026-07-28") as gmail:
        await refused(
            gmail, "send_email", **{key: page[key] for key in ("to", "subject", "body")}
        )
    unsigned = [each.action.body for each in (await desk.waiting.requests())[0]]

    assert card.body == "Yes.\n\n-- \nMe\nWork Inc. – 1 Street\n"
    assert "Work Inc. – 1 Street" in shown
    assert (card.account, sent["from_address"]) == (
        "sales@work.example",
        "sales@work.example",
    )
    raw = message_from_bytes(accounts.relay.delivered[0][1], policy=email.policy.default)
    assert (raw["From"], raw.get_content().replace("\r\n", "\n")) == (
        "sales@work.example",
        card.body,
    )
    assert isinstance(again, NotApproved)
    assert unsigned == [card.body, page["body"]]


@requirement("accounts:sender")
async def test_each_account_has_one_rate_window_for_all_its_addresses(
    accounts: Accounts, home: Home
) -> None:
    accounts.work.deliver(
        letter(subject="To sales", to="Sales@work.example", message_id="<s@x>")
    )
    more = {"DESKHAND_MAX_SENDS": "1"}
    desk = Desk(load(home.environment | more).settings)
    async with Client(desk_server(desk), mode="2026-07-28") as client:
        mail = (await found(client))["To sales"]
        answer = {key: mail[key] for key in ("thread_id", "message_id")}
        calls = [
            ("send_email", HELLO),
            ("send_email", HELLO | {"account": "work"}),
            ("send_email", HELLO | {"subject": "Once more"}),
            ("reply_email", answer | {"body": "Yes.\n"}),
        ]
        for name, arguments in calls:
            await refused(client, name, **arguments)
        accounts.approve_all()
        for name, arguments in calls[:2]:
            await call(client, name, **arguments)
        late = [await refused(client, name, **arguments) for name, arguments in calls[2:]]
    await desk.close_mailbox()
    desk.close()

    assert [each["error"] for each in late] == ["rate_limited"] * 2


@requirement("accounts:sender")
async def test_a_yes_written_by_hand_for_one_account_lets_nothing_leave_from_another(
    client: Client, desk: Desk, accounts: Accounts
) -> None:
    approved = accounts.home.vault / "Approved"
    approved.mkdir()
    lines = [
        "---",
        "type: email_send",
        "status: approved",
        "to: ann@example.org",
        "account: me@work.example",
        "---",
    ]
    (approved / "yes.md").write_text("\n".join(lines) + "\n")
    other = await refused(client, "send_email", **HELLO)
    sent = await call(client, "send_email", **HELLO, account="work")

    assert other["details"]["reason"] == "no_approval"
    assert sent["from_address"] == "me@work.example"


@requirement("accounts:config")
async def test_the_command_line_knows_each_account(accounts: Accounts, desk: Desk) -> None:
    home = accounts.home
    (home.path / "more.eml").write_bytes(letter(subject="Brought in", message_id="<i@x>"))
    added = home.command(
        "init", "--account", "archive", "--mail", "local", "--address", "old@x.de", "--yes"
    )
    imported = home.command(
        "mail", "import", str(home.path / "more.eml"), "--account", "archive"
    )
    searched = home.command("mail", "search", "subject:brought", "--json")
    checked = json.loads(home.command("doctor", "--json").stdout)

    assert (added.returncode, imported.returncode) == (0, 0), added.stderr + imported.stderr
    assert "deskhand mail login gmail --account google" in added.stdout
    for name, refusal in (("archive", Exists), ("a~b", BadConfig)):
        with pytest.raises(refusal):
            plan_account(home.path, name, {"mail": "local", "address": "new@x.de"})
    assert [json.loads(line)["account"] for line in searched.stdout.splitlines()] == [
        "old@x.de"
    ]
    findings = {
        each["name"]: each["state"]
        for each in checked["findings"]
        if each["name"].startswith("mail")
    }
    assert findings == {
        f"mail {name}": "good" for name in ("main", "google", "work", "archive")
    }


@requirement("mail:unsubscribe")
async def test_a_list_is_left_by_a_mail_that_waits_like_any_other(
    client: Client, desk: Desk, accounts: Accounts
) -> None:
    ways = {
        "Out": "<https://list.example/out>, <mailto:leave+1%2F2@list.example?subject=out%20please+1&cc=spy@x.de>",
        "Plain": "<https://[no.host>, <mailto://[x>, <MAILTO:leave@list.example>",
        "Page": "<https://list.example/out>",
        "Two": "<mailto:a@list.example,b@list.example>",
        "Trick": "<mailto:leave@list.example?subject=a%0d%0aBcc:%20spy@x.de&body=b>",
        "None": "",
    }
    for subject, way in ways.items():
        header = f"List-Unsubscribe: {way}\r\n".encode() if way else b""
        to = "Sales@work.example" if subject == "Plain" else "me@work.example"
        accounts.work.deliver(
            header + letter(subject=subject, to=to, message_id=f"<{subject}@l>")
        )
    mails = await found(client, "", account="work")
    answers = {
        subject: await refused(
            client, "unsubscribe", message_id=mails[subject]["message_id"]
        )
        for subject in ways
    }
    ((*waiting,), _) = await desk.waiting.requests()

    assert {each.note for each in waiting} == {
        f"To leave the list of the mail {subject} from Ann <ann@example.org>."
        for subject in ("Out", "Plain", "Trick")
    }
    asked = {(each.action.to, each.action.subject, each.action.account) for each in waiting}
    assert asked == {
        ("leave+1/2@list.example", "out please+1", "me@work.example"),
        ("leave@list.example", "unsubscribe", "sales@work.example"),
        ("leave@list.example", "a Bcc: spy@x.de", "me@work.example"),
    }
    assert [answers[subject]["error"] for subject in ("Page", "Two", "None")] == [
        "not_found"
    ] * 3
    assert "https://list.example/out" in json.dumps(answers["Page"])
    assert {answers[subject]["error"] for subject in ("Out", "Plain", "Trick")} == {
        "permission_denied"
    }


@requirement("accounts:watched")
async def test_each_account_is_watched_and_a_draft_leaves_from_the_one_that_got_the_mail(
    accounts: Accounts, desk: Desk
) -> None:
    (accounts.home.path / "rules.toml").write_text(
        '[[rule]]\nname = "work"\naccount = "work"\ndecision = "draft_reply"\nreply_body = "Thank you."\n'
    )
    good = (accounts.home.path / "g.json").read_text()
    (accounts.home.path / "g.json").write_text(
        good.replace(accounts.google.origin, "http://127.0.0.1:1")
    )
    orchestrator = Orchestrator(desk)
    await orchestrator.once()
    before = _notes(accounts.home.vault)
    (accounts.home.path / "g.json").write_text(good)
    await orchestrator.once()
    await orchestrator.once()
    after = _notes(accounts.home.vault)
    (draft,) = (await desk.waiting.requests())[0]
    (accounts.home.vault / "Approved").mkdir(exist_ok=True)
    (accounts.home.vault / "Drafts" / draft.file).rename(
        accounts.home.vault / "Approved" / draft.file
    )
    await desk.gate.release(draft.id, "desk")
    await orchestrator.close()

    assert before == {"From home": "me@home.example", "From work": "me@work.example"}
    assert after == before | {"From Google": "me@gmail.example"}
    assert draft.action.account == "me@work.example"
    assert (await accounts.sent(desk))["work"] == ["me@work.example"]


@requirement("accounts:down")
async def test_an_account_whose_first_mail_nobody_asked_for_yet_is_down_until_it_answers(
    accounts: Accounts, desk: Desk
) -> None:
    orchestrator = Orchestrator(desk, asks=True)
    await orchestrator.once()
    asked = await desk.store.read(first_look.list_open)
    accounts.google.chance = lambda _: Status(403)
    stop = asyncio.Event()
    running = asyncio.create_task(orchestrator.run(stop))
    with fail_after(40):
        while [part.name for part in desk.parts.down] != ["mail google"]:
            await checkpoint()
    stop.set()
    await running
    await orchestrator.close()

    assert len(asked) == 3


@requirement("accounts:down")
async def test_an_account_whose_watcher_fails_is_said_to_be_down_once_whoever_else_is_answered(
    accounts: Accounts, desk: Desk, client: Client
) -> None:
    said: list[bool] = []
    desk.parts.tell = lambda part, _name: said.append(part is not None)
    orchestrator = Orchestrator(desk)
    await orchestrator.once()

    def fail_history(name: str) -> Status | None:
        return Status(403) if name.startswith("history") else None

    accounts.google.chance = fail_history
    stop = asyncio.Event()
    running = asyncio.create_task(orchestrator.run(stop))
    with fail_after(40):
        while not desk.parts.down:
            await checkpoint()
        for _ in range(3):
            assert len(await found(client)) == 3
    stop.set()
    await running
    await orchestrator.close()

    assert said == [True]


@requirement("accounts:down")
async def test_an_account_that_answers_again_is_watched_at_once(
    accounts: Accounts, desk: Desk, client: Client
) -> None:
    orchestrator = Orchestrator(desk)
    await orchestrator.once()
    accounts.google.expire()
    token = accounts.google.refresh_token
    accounts.google.refresh_token = None
    stop = asyncio.Event()
    running = asyncio.create_task(orchestrator.run(stop))
    with fail_after(40):
        while not desk.parts.down:
            await checkpoint()
        accounts.google.refresh_token = token
        await found(client)  # else a sign-in that was refused is tried again minutes later
        while desk.parts.down:
            await checkpoint()
    stop.set()
    await running
    await orchestrator.close()

    assert desk.parts.down == []


@requirement("accounts:down")
async def test_an_account_that_is_down_keeps_no_other_from_asking_what_is_brought_in(
    accounts: Accounts, desk: Desk
) -> None:
    accounts.google.chance = lambda _: Status(403)
    asked = accounts.home.command("mail", "bring-in", "--json")
    accounts.google.chance = lambda _: None
    whole = accounts.home.command("mail", "bring-in", "--json")

    assert asked.returncode == 0, asked.stderr
    assert [each["mailbox"] for each in json.loads(asked.stdout)] == [
        "imap:me@work.example",
        "local:me@home.example",
    ]
    assert "The mail account google did not answer" in asked.stderr
    assert len(json.loads(whole.stdout)) == 3


@requirement("accounts:sender")
@pytest.mark.parametrize("alone", [False, True], ids=["several", "alone"])
async def test_what_was_approved_leaves_from_nobody_who_signed_in_instead(
    accounts: Accounts, *, alone: bool
) -> None:
    credentials = accounts.home.path / "g.json"
    if alone:
        place = f'gmail_credentials = "{credentials}"\ngmail_api_endpoint = "{accounts.google.origin}"\n'
        (accounts.home.path / "config.toml").write_text(f'[mail]\nkind = "gmail"\n{place}')
    letter_from = HELLO if alone else HELLO | {"account": "google"}
    async with (
        accounts.desk() as desk,
        Client(desk_server(desk), mode="2026-07-28") as client,
    ):
        await refused(client, "send_email", **letter_from)
        ((waits,), _) = await desk.waiting.requests()
        accounts.google.account.address = "other@gmail.example"
        accounts.google.refresh_token = "refresh-2"
        accounts.google.credentials(credentials, refresh_token="refresh-2")
        accounts.google.expire()
        accounts.approve_all()
        await desk.gate.release(waits.id, "desk")
        kept = await desk.gate.find(waits.id)
        mails = await found(client)

    assert waits.action.account == "me@gmail.example"
    assert accounts.google.delivered == []
    assert kept.state == "approved"
    assert "no mail account me@gmail.example" in (kept.note or "")
    assert "From Google" in mails


@requirement("accounts:config")
async def test_an_account_that_is_signed_in_as_another_is_down_and_nothing_is_doubled(
    accounts: Accounts, desk: Desk
) -> None:
    credentials = accounts.home.path / "g.json"
    twin = f'[[mail.accounts]]\nname = "twin"\nkind = "gmail"\ngmail_credentials = "{credentials}"\n'
    accounts.write_config(more=f'{twin}gmail_api_endpoint = "{accounts.google.origin}"\n')
    async with (
        accounts.desk() as both,
        Client(desk_server(both), mode="2026-07-28") as client,
    ):
        await found(client)  # each says who it is
        result = await client.call_tool("search_email", {"query": "", "max_results": 50})
        orchestrator = Orchestrator(both)
        await orchestrator.once()
        await orchestrator.close()
        down = {part.name: part.why for part in both.parts.down}
    checked = json.loads(accounts.home.command("doctor", "--json").stdout)

    subjects = [each["subject"] for each in result.structured_content["emails"]]
    assert sorted(subjects) == ["From Google", "From home", "From work"]
    assert "twin did not answer" in result.content[1].text
    assert set(down) == {"mail twin"}
    assert "me@gmail.example, which the account google is" in down["mail twin"]
    (finding,) = [each for each in checked["findings"] if each["name"] == "mail twin"]
    assert finding["state"] == "bad"


def _notes(vault: Path) -> dict[str, str]:
    """The account of each mail that has a note, by its subject; none has two."""
    texts = [file.read_text() for file in (vault / "Needs_Action").glob("*.md")]
    pairs = [(_value(text, "subject"), _value(text, "account")) for text in texts]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def _value(text: str, key: str) -> str:
    return next(
        line.partition(": ")[2] for line in text.splitlines() if line.startswith(f"{key}: ")
    )


LOCAL = '[[mail.accounts]]\nname = "{}"\nkind = "local"\naddress = "{}"\n'


@requirement("accounts:config")
@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        (
            LOCAL.format("a", "a@x.de") + LOCAL.format("A", "b@x.de"),
            "mail.accounts",
            "named a",
        ),
        (
            LOCAL.format("a", "a@x.de")
            + "default = true\n"
            + LOCAL.format("b", "b@x.de")
            + "default = true\n",
            "mail.accounts",
            "only one account can be the default: a, b",
        ),
        (
            LOCAL.format("a", "a@x.de") + LOCAL.format("b", "A@x.de"),
            "mail.accounts",
            "two accounts have the address",
        ),
        (
            '[mail]\naddress = "a@x.de"\n' + LOCAL.format("a", "A@x.de"),
            "mail.address",
            "another account",
        ),
        (
            LOCAL.format("a~b", "a@x.de"),
            "mail.accounts.1.name",
            "ids of its mails cannot carry",
        ),
        (LOCAL.format("main", "a@x.de"), "mail.accounts.1.name", "choose another name"),
        (LOCAL.format("", "a@x.de"), "mail.accounts.1.name", "cannot carry"),
        (LOCAL.format("a", "nobody"), "mail.accounts.1.address", "not a mail address"),
        (
            LOCAL.format("a", "a@x.de") + '[[mail.accounts]]\nname = "b"\nkind = "pop3"\n',
            "mail.accounts.2.kind",
            "'local', 'gmail' or 'imap'",
        ),
        (
            '[[mail.accounts]]\nname = "b"\nkind = "local"\n',
            "mail.accounts.1",
            "needs its address",
        ),
        (
            '[[mail.accounts]]\nname = "b"\nkind = "imap"\n',
            "mail.accounts.1",
            "needs imap_url",
        ),
        (
            '[[mail.accounts]]\nname = "b"\nkind = "gmail"\nsignature = "B"\n',
            "mail.accounts.1",
            "needs its address",
        ),
        ('[[mail.accounts]]\nkind = "gmail"\n', "mail.accounts.1.name", "required"),
        (
            LOCAL.format("a", "a@x.de") + 'imap_url = "imap://u:secret@h"\n',
            "mail.accounts.1",
            "no option of a local",
        ),
        (
            LOCAL.format("a", "a@x.de") + "colour = 1\n",
            "mail.accounts.1.colour",
            "not permitted",
        ),
        ("[mail]\naccounts = 7\n", "mail.accounts", "tuple"),
    ],
)
def test_an_account_that_cannot_be_is_named_with_the_reason(
    text: str, field: str, says: str, home: Home
) -> None:
    home.path.mkdir()
    (home.path / "config.toml").write_text(text)
    with pytest.raises(BadConfig) as refusal:
        load(home.environment)
    (problem,) = refusal.value.details["fields"]

    assert problem["field"] == field
    assert says in problem["message"]
    assert "secret" not in str(refusal.value.details)


@requirement("accounts:config")
async def test_without_an_account_of_its_own_the_desk_has_those_of_the_tables(
    home: Home,
) -> None:
    home.path.mkdir()
    tables = LOCAL.format("a", "a@x.de") + LOCAL.format("b", "b@x.de") + "default = true\n"
    (home.path / "config.toml").write_text(tables)
    settings = load(home.environment).settings
    by_variable = load(
        home.environment | {"DESKHAND_MAIL_ACCOUNTS": '[{"name": "c", "kind": "gmail"}]'}
    ).settings
    desk = Desk(settings)
    sender = await desk.mailbox.address()
    await desk.close_mailbox()

    assert [account.name for account in settings.mail_accounts] == ["a", "b"]
    assert sender == "b@x.de"
    assert [account.name for account in by_variable.mail_accounts] == ["c"]
    assert home.command("config", "show", "--json").returncode == 0
