"""A desk with several vaults: one set of tools over all of them, and no token sees more than its own."""

import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client

from deskhand import tokens
from deskhand.app import Desk
from deskhand.config import load
from deskhand.errors import BadConfig
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.servers.desk import desk_server
from deskhand.servers.obsidian import obsidian_server
from deskhand.setup import doctor
from deskhand.web.site import site
from tests.home import Home
from tests.notes.test_obsidian_server import ok, refused
from tests.requirements import requirement
from tests.transports import http_client, http_server
from tests.web.person import served, signed_in

pytestmark = pytest.mark.anyio
ERA = "2026-07-28"
NOTES = {
    "vault/Garden.md": "---\ntags: [green]\n---\nroses and oak [[Work plan]]\n",
    "vault/Plans/Old.md": "oak\n",
    "work/Work plan.md": "---\ntags: [Green, office]\n---\n# Oak desk\n\n## Log\n\nfirst [[Sub/Other]]\n",
    "work/Sub/Other.md": "other [[Work plan]] ![[map.png]]\n",
    "work/map.png": "picture",
    "work/Done/x.md": "oak, done\n",
    "third/Third.md": "nothing of it\n",
}


@pytest.fixture
def home(home: Home, tmp_path: Path) -> Home:
    for path, text in NOTES.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    home.path.mkdir()
    (home.path / "config.toml").write_text(tables(tmp_path, work="work", third="third"))
    return home


def tables(folder: Path, **vaults: str) -> str:
    return "".join(
        f'[[notes.vaults]]\nname = "{name}"\npath = "{folder / path}"\n'
        for name, path in vaults.items()
    )


@pytest.fixture
async def client(desk: Desk) -> AsyncIterator[Client]:
    async with Client(obsidian_server(desk), mode=ERA) as client:
        yield client


async def paths(client: Client, tool: str, /, **arguments: Any) -> list[str]:
    return [note["path"] for note in (await ok(client, tool, **arguments))["notes"]]


@requirement("vaults:one-view")
async def test_a_search_goes_over_all_vaults_and_says_whose_each_note_is(
    client: Client,
) -> None:
    found = await ok(client, "search_notes", query="oak")
    pages = []
    cursor = None
    while True:
        page = await ok(
            client,
            "search_notes",
            query="oak",
            limit=1,
            **({"cursor": cursor} if cursor else {}),
        )
        pages += [note["path"] for note in page["notes"]]
        cursor = page.get("next_cursor")
        if cursor is None:
            break
        assert page["total"] == 4
    one = await paths(client, "search_notes", query="oak", vault="work")
    tags = (await ok(client, "list_tags"))["tags"]

    whose = {note["path"]: note["vault"] for note in found["notes"]}
    assert whose == {
        "Garden.md": "main",
        "Plans/Old.md": "main",
        "work:Work plan.md": "work",
        "work:Done/x.md": "work",
    }
    assert pages == [*whose]
    assert sorted(one) == ["work:Done/x.md", "work:Work plan.md"]
    assert {name.casefold(): count for name, count in tags.items()} == {
        "green": 2,
        "office": 1,
    }
    assert (await ok(client, "list_tags", vault="third"))["tags"] == {}


@requirement("vaults:one-view")
async def test_notes_with_the_whole_query_come_first_whatever_vault_they_are_in(
    home: Home, client: Client
) -> None:
    for number in range(3):
        (home.vault / f"words{number}.md").write_text("desk made of oak")
    found = await paths(client, "search_notes", query="oak desk", limit=2)

    assert found[0] == "work:Work plan.md"
    assert found[1].startswith("words")


@requirement("vaults:one-view")
@pytest.mark.parametrize(
    "place", [{"path": "work:Work plan.md"}, {"path": "Work plan.md", "vault": "work"}]
)
async def test_every_tool_works_in_the_vault_that_is_named(
    home: Home, client: Client, tmp_path: Path, place: dict[str, str]
) -> None:
    vault = {"vault": place["vault"]} if "vault" in place else {}
    before = "" if vault else "work:"
    file = tmp_path / "work" / "Work plan.md"

    read = await ok(client, "read_note", **place)
    await ok(client, "append_note", **place, text="- second", heading="Log")
    edited = await ok(
        client,
        "edit_note",
        **place,
        edits=[{"key": "status", "do": "insert", "value": "open"}],
    )
    links = await ok(client, "get_links", **place)
    outline = await ok(client, "get_outline", **place)
    listed = await paths(client, "list_notes", directory=f"{before}Sub", **vault)
    await ok(
        client,
        "move_note",
        source=f"{before}Sub/Other.md",
        destination="Sub/Moved.md",
        **vault,
    )
    made = await ok(
        client,
        "create_from_template",
        template="Sub/Moved.md",
        path=f"{before}New.md",
        values={},
        **vault,
    )
    day = await ok(client, "daily_note", date="2026-11-30", create=True, vault="work")
    own = await ok(
        client,
        "write_note",
        path=f"{before}Approved/y.md",
        frontmatter={},
        body="free here",
        **vault,
    )

    assert read["path"] == "work:Work plan.md"
    assert "- second" in file.read_text()
    assert "status: open" in file.read_text()
    assert edited["path"] == "work:Work plan.md"
    assert [each["path"] for each in links["outgoing"]] == ["work:Sub/Other.md"]
    assert links["backlinks"] == ["work:Sub/Other.md"]
    assert outline["path"] == "work:Work plan.md"
    assert listed == ["work:Sub/Other.md"]
    assert (tmp_path / "work/Sub/Moved.md").exists()
    assert (made["path"], day["path"], own["path"]) == (
        "work:New.md",
        "work:2026-11-30.md",
        "work:Approved/y.md",
    )
    assert not (home.vault / "Approved").exists()


@requirement("vaults:first")
async def test_the_first_vault_is_as_it_was(home: Home, client: Client) -> None:
    (tools,) = [{each.name: each for each in (await client.list_tools()).tools}]
    closed = await refused(
        client, "write_note", path="Approved/x.md", frontmatter={}, body=""
    )
    (home.vault / "work:Work plan.md").write_text(
        "a name that a path of the vault work could have, oak"
    )
    odd = (await paths(client, "search_notes", query="a name that"))[0]

    assert (await ok(client, "read_note", path="Garden.md"))["path"] == "Garden.md"
    assert (await ok(client, "read_note", path="main:Garden.md"))["path"] == "Garden.md"
    assert await paths(client, "list_notes", directory="") == [
        "Garden.md",
        "Plans/Old.md",
        "main:work:Work plan.md",
    ]
    assert closed["details"]["reason"] == "protected"
    assert odd == "main:work:Work plan.md"
    assert (await refused(client, "read_note", path=odd))["error"] == "permission_denied"
    assert tools["read_note"].input_schema["required"] == ["path"]
    assert "vault" in tools["read_note"].input_schema["properties"]


@requirement("vaults:first")
async def test_what_names_two_vaults_or_none_is_refused(client: Client) -> None:
    both = await refused(client, "read_note", path="work:Work plan.md", vault="third")
    strange = await refused(client, "read_note", path="Garden.md", vault="nowhere")
    listed = await refused(client, "read_note", path="Garden.md", vault=["work"])
    colon = await refused(client, "read_note", path="nowhere:Garden.md")
    out = await refused(client, "read_note", path="work:../vault/Garden.md")
    moved = await refused(
        client, "move_note", source="Garden.md", destination="work:Garden.md"
    )
    template = await refused(
        client, "create_from_template", template="Garden.md", path="work:G.md", values={}
    )
    foreign = await refused(
        client,
        "create_from_template",
        template="main:Garden.md",
        path="work:G.md",
        values={},
    )
    cursor = await refused(client, "search_notes", query="oak", cursor="bm90aGluZw==")

    assert both["error"] == strange["error"] == listed["error"] == "parse_error"
    assert strange["details"]["fields"][0]["suggestion"] == "main, work, third"
    assert colon["error"] == out["error"] == "permission_denied"
    assert moved["error"] == foreign["error"] == cursor["error"] == "parse_error"
    assert (template["error"], template["details"]["vault"]) == ("not_found", "work")


@requirement("vaults:missing")
async def test_a_vault_that_is_missing_is_named_and_stops_no_other(
    home: Home, desk: Desk, client: Client, tmp_path: Path
) -> None:
    await ok(client, "search_notes", query="oak")
    (tmp_path / "work").rename(tmp_path / "away")
    found = await ok(client, "search_notes", query="oak")
    alone = await refused(client, "search_notes", query="oak", vault="work")
    read = await refused(client, "read_note", path="work:Work plan.md")
    tags = await ok(client, "list_tags")
    findings = {each.name: each.state for each in await doctor.checkup(desk)}
    listed = home.command("notes", "search", "oak")
    home.vault.rename(tmp_path / "first")
    async with Client(obsidian_server(desk), mode=ERA) as other:
        third = await ok(other, "read_note", path="third:Third.md")
    (tmp_path / "away").rename(tmp_path / "work")
    back = await paths(client, "search_notes", query="oak")

    assert {note["path"] for note in found["notes"]} == {"Garden.md", "Plans/Old.md"}
    assert [*found["missing"]] == [*tags["missing"]] == ["work"]
    assert str(tmp_path / "work") in found["missing"]["work"]
    assert "is not a folder" in alone["message"]
    assert read["details"]["vault"] == "work"
    assert (findings["vault main"], findings["vault work"], findings["vault third"]) == (
        "good",
        "bad",
        "good",
    )
    assert findings["index third"] == "good"
    assert "The vault work is missing here" in listed.stderr
    assert "Garden.md" in listed.stdout
    assert third["path"] == "third:Third.md"
    assert sorted(back) == ["work:Done/x.md", "work:Work plan.md"]


@requirement("vaults:scopes")
async def test_a_token_for_one_vault_sees_writes_in_and_learns_of_no_other(
    home: Home, desk: Desk
) -> None:
    make = {
        "reads": ["notes:read:work", "mail:write"],
        "writes": ["notes:read", "notes:write:work"],
        "stranger": ["notes:write:other"],
    }
    secret = {
        name: desk.store.write_sync(
            partial(tokens.create, name=name, now=desk.now(), scopes=scopes)
        )
        for name, scopes in make.items()
    }
    with http_server(home, "desk", DESKHAND_ADDRESS="me@home.example") as address:
        async with http_client(address, secret["reads"], ERA) as client:
            found = await paths(client, "search_notes", query="oak")
            bare = await ok(client, "read_note", path="Work plan.md")
            closed = [
                await refused(client, "read_note", path="main:Garden.md"),
                await refused(client, "read_note", path="Garden.md", vault="main"),
                await refused(client, "read_note", path="third:Third.md"),
                await refused(
                    client, "write_note", path="work:x.md", frontmatter={}, body=""
                ),
                await refused(
                    client,
                    "send_email",
                    to="a@b.example",
                    subject="s",
                    body="b",
                    attachments=["Garden.md"],
                ),
            ]
            resources = {each.name for each in (await client.list_resources()).resources}
            text = (
                (await client.read_resource("note://work%3AWork%20plan.md"))
                .contents[0]
                .text
            )
        async with http_client(address, secret["writes"], ERA) as client:
            everything = await paths(client, "search_notes", query="oak")
            first = await refused(client, "append_note", path="Garden.md", text="x")
            written = await ok(
                client, "append_note", path="work:Sub/Other.md", text="written"
            )
            attached = await refused(
                client, "send_email", to="a@b.example", subject="s", body="b"
            )
        async with http_client(address, secret["stranger"], ERA) as client:
            nothing = await refused(client, "search_notes", query="oak")

    assert sorted(found) == ["work:Done/x.md", "work:Work plan.md"]
    assert bare["path"] == "work:Work plan.md"
    assert [each["error"] for each in closed[:2]] == ["permission_denied", "parse_error"]
    assert {each["error"] for each in closed[2:4]} == {"permission_denied"}
    assert closed[4]["error"] == "not_found"
    assert not any(
        "third" in json.dumps(each).replace("third:Third.md", "") for each in closed
    )
    assert resources >= {"work:Sub/Other.md"}
    assert not any("Garden" in name for name in resources)
    assert "Oak desk" in text
    assert len(everything) == 4
    assert first["details"]["scope"] == "notes:write:main"
    assert written["path"] == "work:Sub/Other.md"
    assert attached["error"] == "permission_denied"
    assert nothing["error"] == "permission_denied"


@requirement("vaults:one-view")
async def test_a_file_of_another_vault_goes_along_and_a_changed_one_does_not(
    home: Home, tmp_path: Path
) -> None:
    desk = Desk(load(home.environment | {"DESKHAND_ADDRESS": "me@home.example"}).settings)
    letter = {
        "to": "a@b.example",
        "subject": "s",
        "body": "b",
        "attachments": ["work:map.png"],
    }
    async with Client(desk_server(desk), mode=ERA) as client:
        waits = json.loads((await client.call_tool("send_email", letter)).content[0].text)
        (pending,) = (home.vault / "Pending_Approval").glob("*.md")
        assert "work:map.png" in pending.read_text()
        (home.vault / "Approved").mkdir(exist_ok=True)
        pending.rename(home.vault / "Approved" / pending.name)
        (tmp_path / "work/map.png").write_text("another picture")
        changed = json.loads(
            (await client.call_tool("send_email", letter | {"attachments": None}))
            .content[0]
            .text
        )
        again = json.loads((await client.call_tool("send_email", letter)).content[0].text)
    await desk.close_mailbox()
    desk.close()

    assert waits["details"]["reason"] == "no_approval"
    assert changed["details"]["reason"] == again["details"]["reason"] == "no_approval"


@requirement("vaults:config")
@pytest.mark.parametrize(
    ("vaults", "said"),
    [
        ({"work": "vault/inner"}, "lies in"),
        ({"work": "."}, "holds"),
        ({"work": "vault/../vault/Approved"}, "lies in"),
        ({"work": "link"}, "lies in"),
        ({"work": "work", "Work": "third"}, "two vaults have this name"),
        ({"main": "work"}, "two vaults have this name"),
        ({"work": "work", "other": "work"}, "lies in"),
        ({"a b": "work"}, "cannot carry"),
        ({"a:b": "work"}, "cannot carry"),
    ],
)
def test_vaults_that_cannot_be_told_apart_are_refused(
    home: Home, tmp_path: Path, vaults: dict[str, str], said: str
) -> None:
    (tmp_path / "link").symlink_to(home.vault / "Approved")
    (home.path / "config.toml").write_text(tables(tmp_path, **vaults))

    with pytest.raises(BadConfig) as caught:
        load(home.environment)

    (problem, *_) = caught.value.details["fields"]
    assert said in problem["message"]
    assert problem["field"].startswith("notes.vaults")


@requirement("vaults:config")
def test_the_first_of_the_tables_is_the_first_vault_where_none_else_is_named(
    home: Home, tmp_path: Path
) -> None:
    alone = {
        name: value for name, value in home.environment.items() if name != "VAULT_PATH"
    }
    given = {"DESKHAND_VAULTS": json.dumps([{"name": "home", "path": str(home.vault)}])}

    assert load(alone).settings.vault == tmp_path / "work"
    assert [each.name for each in load(alone).settings.note_vaults] == ["work", "third"]
    named = load(
        home.environment | {"VAULT_PATH": str(tmp_path / "third" / ".." / "third")}
    ).settings.note_vaults
    assert [each.name for each in named] == ["third", "work"]
    assert [each.name for each in load(home.environment | given).settings.note_vaults] == [
        "home"
    ]
    assert "work (" in home.command("config", "show").stdout


@requirement("vaults:page")
async def test_the_page_shows_each_vault_and_searches_all(desk: Desk) -> None:
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        await look_at_every_vault(person.http)


async def look_at_every_vault(person: httpx2.AsyncClient) -> None:
    first = (await person.get("/notes")).text
    work = (await person.get("/notes", params={"folder": "work:"})).text
    note = (await person.get("/notes/open", params={"path": "work:Sub/Other.md"})).text
    led = await person.get(
        "/notes/link", params={"to": "Work plan", "from": "work:Sub/Other.md"}
    )
    found = (await person.get("/notes", params={"q": "oak"})).text
    one = (await person.get("/notes", params={"q": "oak", "vault": "work"})).text
    lost = await person.get("/notes", params={"q": "oak", "vault": "none"})

    assert 'href="/notes?folder=work%3A"' in first
    assert "Garden" in first
    assert "path=work%3AWork+plan.md" in work or "path=work%3AWork%20plan.md" in work
    assert "Garden" not in work
    assert "/notes/file?path=work%3Amap.png" in note
    assert "path=work%3AWork" in str(led.headers.get("location") or led.url)
    assert "Garden.md" in found
    assert "work:Work plan.md" in found
    assert "Garden.md" not in one
    assert lost.status_code == 404


@requirement("vaults:page")
def test_the_command_line_knows_the_vaults(home: Home, tmp_path: Path) -> None:
    added = home.command("notes", "append", "work:Sub/Other.md", "from the terminal")
    listed = home.command("notes", "list", "--vault", "work")
    built = home.command("notes", "index", "--rebuild")

    assert added.returncode == 0, added.stderr
    assert (tmp_path / "work/Sub/Other.md").read_text().endswith("from the terminal\n")
    assert "work:Sub/Other.md" in listed.stdout
    assert "Garden" not in listed.stdout
    assert built.returncode == 0, built.stderr
    assert len([*(home.path / "cache").glob("notes-*.db")]) == 3
    assert home.command("notes", "list", "--vault", "nowhere").returncode != 0


@requirement("vaults:home")
async def test_no_tool_reaches_the_desks_home_in_a_vault(
    home: Home, tmp_path: Path
) -> None:
    inside = tmp_path / "third" / "Own" / "dh"
    (inside / "deeper").mkdir(parents=True)
    (inside / "config.toml").write_text(tables(tmp_path, work="work", third="third"))
    secret = inside / "deeper" / "Secret.md"
    secret.write_text("#hidden oak of the home\n")
    (inside.parent / "Open.md").write_text("oak [[Secret]] ![[config.toml]]\n")
    settings = load(
        home.environment
        | {"DESKHAND_HOME": str(inside), "DESKHAND_ADDRESS": "me@example.com"}
    ).settings
    desk = Desk(settings)
    mail = b"From: a@example.org\nSubject: x\nContent-Disposition: attachment; filename=guard.toml\n\nx\n"
    assert isinstance(desk.mailbox, LocalMailbox)
    await desk.mailbox.receive([Incoming(mail, seen=True)])
    (listed,) = await desk.mailbox.search("", 1)
    before = sorted(inside.rglob("*.toml"))

    async with Client(desk_server(desk), mode=ERA) as client:
        for folder in ("third:Own/dh", "third:own/DH"):
            saved = {
                "message_id": listed.id,
                "name": "guard.toml",
                "path": f"{folder}/guard.toml",
            }
            note = f"{folder}/deeper/Secret.md"
            letter = {
                "to": "a@example.org",
                "subject": "s",
                "body": "b",
                "attachments": [f"{folder}/config.toml"],
            }
            away = {"source": note, "destination": "third:Away.md"}
            into = {"source": "third:Own/Open.md", "destination": f"{folder}/Open.md"}
            for tool, arguments in (
                ("save_attachment", saved),
                ("send_email", letter),
                ("read_note", {"path": note}),
                (
                    "write_note",
                    {"path": f"{folder}/new.md", "frontmatter": {}, "body": "x"},
                ),
                ("append_note", {"path": note, "text": "x"}),
                ("move_note", away),
                ("move_note", into),
                ("list_notes", {"directory": folder}),
            ):
                error = await refused(client, tool, **arguments)
                assert (error["error"], error["details"]["reason"]) == (
                    "permission_denied",
                    "protected",
                ), tool
        found = await paths(client, "search_notes", query="oak", vault="third")
        everything = await paths(client, "list_notes", directory="third:")
        tags = (await ok(client, "list_tags", vault="third"))["tags"]
        links = await ok(client, "get_links", path="third:Own/Open.md")

    assert found == ["third:Own/Open.md"]
    assert sorted(everything) == ["third:Own/Open.md", "third:Third.md"]
    assert tags == {}
    assert links["unresolved"] == ["Secret", "config.toml"]
    assert desk.vaults.locate(["config.toml"], "third:Own/Open.md") == {}
    assert secret.read_text() == "#hidden oak of the home\n"
    assert sorted(inside.rglob("*.toml")) == before
    await desk.close_mailbox()
    desk.close()
