"""The contract's settings, and where they may come from."""

from collections.abc import Callable
from pathlib import Path

import pytest

from deskhand.app import Desk
from deskhand.config import load
from deskhand.errors import BadConfig
from tests.home import Home
from tests.requirements import requirement

SEED = {
    "SERVICE_AUTH_TOKEN": "from the file",
    "FASTAPI_BASE_URL": "http://localhost:8000",
    "MCP_LOG_LEVEL": "DEBUG",
    "MCP_SERVER_PORT": "4001",
    "BACKEND_TIMEOUT": "12.5",
    "BACKEND_MAX_RETRIES": "0",
}


@requirement("tasks:settings")
def test_the_seeds_defaults_hold(tmp_path: Path) -> None:
    settings = load({"DESKHAND_HOME": str(tmp_path)}).settings

    assert (settings.log_level, settings.port) == ("INFO", 3000)
    assert (settings.backend_timeout, settings.backend_max_retries, settings.user) == (
        30.0,
        2,
        None,
    )


@requirement("tasks:settings")
def test_an_env_file_sets_the_seeds_options_and_the_environment_wins(
    tmp_path: Path,
) -> None:
    file = tmp_path / ".env"
    lines = [f'export {name}="{value}"' for name, value in SEED.items()]
    file.write_text(
        "\n".join(["# a comment", "vault_path=/stranger", "DESKHAND_MAIL=imap", "", *lines])
    )

    loaded = load(
        {"DESKHAND_HOME": str(tmp_path), "MCP_SERVER_PORT": "5000"}, env_file=file
    )

    assert loaded.settings.fastapi_base_url == "http://localhost:8000"
    assert loaded.settings.service_auth_token.get_secret_value() == "from the file"
    assert (loaded.settings.backend_timeout, loaded.settings.backend_max_retries) == (
        12.5,
        0,
    )
    assert (
        loaded.settings.port,
        loaded.sources["port"],
        loaded.sources["backend_timeout"],
    ) == (
        5000,
        "environment",
        ".env",
    )
    assert (loaded.settings.vault_path, loaded.settings.mail) == (None, "local")


@requirement("tasks:settings")
@pytest.mark.parametrize("spelling", [str.lower, str.title, str.upper])
def test_the_environment_may_spell_the_contracts_options_in_either_case(
    tmp_path: Path, spelling: Callable[[str], str]
) -> None:
    given = SEED | {"VAULT_PATH": str(tmp_path), "DEV_MODE": "true"}
    variables = {spelling(name): value for name, value in given.items()}

    loaded = load({"DESKHAND_HOME": str(tmp_path)} | variables)

    assert loaded.settings.fastapi_base_url == "http://localhost:8000"
    assert loaded.settings.service_auth_token.get_secret_value() == "from the file"
    assert (loaded.settings.log_level, loaded.settings.port) == ("DEBUG", 4001)
    assert (loaded.settings.backend_timeout, loaded.settings.backend_max_retries) == (
        12.5,
        0,
    )
    assert loaded.sources["port"] == "environment"
    assert (loaded.settings.vault_path, loaded.settings.dev_mode) == (tmp_path, True)


@requirement("tasks:settings")
def test_of_two_spellings_the_upper_case_one_counts(tmp_path: Path) -> None:
    both = {"MCP_SERVER_PORT": "5000", "mcp_server_port": "4000"}

    for variables in (both, dict(reversed(both.items()))):
        assert load({"DESKHAND_HOME": str(tmp_path)} | variables).settings.port == 5000


@requirement("tasks:settings")
@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("SERVICE_AUTH_TOKEN=abc  # the token", "abc"),
        ("SERVICE_AUTH_TOKEN=abc\t# the token", "abc"),
        ("SERVICE_AUTH_TOKEN=abc#def", "abc#def"),
        ("SERVICE_AUTH_TOKEN=#abc", "#abc"),
        ('SERVICE_AUTH_TOKEN="abc # def"  # the token', "abc # def"),
        ("SERVICE_AUTH_TOKEN='abc # def'# the token", "abc # def"),
        ('SERVICE_AUTH_TOKEN="it\'s \\"x\\""  # say "what"', 'it\'s "x"'),
        ("  export service_auth_token = abc def ", "abc def"),
        ("SERVICE_AUTH_TOKEN=abc\nMCP_LOG_LEVEL=  # none\nMCP_LOG_LEVEL=debug", "abc"),
    ],
)
def test_a_comment_may_follow_a_value_in_an_env_file(
    tmp_path: Path, line: str, value: str
) -> None:
    (tmp_path / ".env").write_text(f"{line}\nBACKEND_TIMEOUT=7 # seconds\n")

    loaded = load({"DESKHAND_HOME": str(tmp_path)}, env_file=tmp_path / ".env")

    assert loaded.settings.service_auth_token.get_secret_value() == value
    assert loaded.settings.backend_timeout == 7


@requirement("tasks:settings")
def test_a_bad_value_in_an_env_file_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("BACKEND_TIMEOUT=0\nFASTAPI_BASE_URL=ftp://x\n")

    with pytest.raises(BadConfig) as caught:
        load({"DESKHAND_HOME": str(tmp_path)}, env_file=tmp_path / ".env")

    assert {field["field"] for field in caught.value.details["fields"]} == {
        "BACKEND_TIMEOUT",
        "FASTAPI_BASE_URL",
    }


@requirement("tasks:settings")
def test_a_backend_without_the_service_token_is_a_setting_that_is_missing(
    home: Home,
) -> None:
    environment = {
        name: value
        for name, value in home.environment.items()
        if name != "SERVICE_AUTH_TOKEN"
    }
    desk = Desk(load(environment | {"FASTAPI_BASE_URL": "http://127.0.0.1:1"}).settings)

    with pytest.raises(BadConfig, match="SERVICE_AUTH_TOKEN"):
        _ = desk.tasks


@requirement("tasks:settings")
@pytest.mark.parametrize("read", ["a-token\n", "a-token\r\n", " a-token "])
def test_a_token_that_was_read_from_a_file_may_end_as_the_file_does(
    tmp_path: Path, read: str
) -> None:
    loaded = load({"DESKHAND_HOME": str(tmp_path), "SERVICE_AUTH_TOKEN": read}).settings

    assert loaded.service_auth_token is not None
    assert loaded.service_auth_token.get_secret_value() == "a-token"


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc/passwd"])
def test_a_zone_that_is_none_is_refused(tmp_path: Path, zone: str) -> None:
    with pytest.raises(BadConfig):
        load({"DESKHAND_HOME": str(tmp_path), "DESKHAND_TIMEZONE": zone})


@requirement("tasks:settings")
def test_a_strangers_folder_cannot_have_the_desks_own_token_sent_to_it(
    tmp_path: Path,
) -> None:
    file = tmp_path / ".env"
    own = {"DESKHAND_HOME": str(tmp_path), "SERVICE_AUTH_TOKEN": "the desk's own"}

    file.write_text("FASTAPI_BASE_URL=https://127.0.0.1.evil.example\n")
    with pytest.raises(BadConfig) as caught:
        load(own, env_file=file)
    file.write_text("FASTAPI_BASE_URL=http://127.0.0.1:8000\n")
    local = load(own, env_file=file)
    file.write_text("FASTAPI_BASE_URL=https://tasks.example\nSERVICE_AUTH_TOKEN=theirs\n")
    theirs = load({"DESKHAND_HOME": str(tmp_path)}, env_file=file)

    assert [field["field"] for field in caught.value.details["fields"]] == [
        "FASTAPI_BASE_URL"
    ]
    assert local.settings.fastapi_base_url == "http://127.0.0.1:8000"
    assert theirs.settings.service_auth_token.get_secret_value() == "theirs"


@requirement("tasks:settings")
@pytest.mark.parametrize(
    "url",
    [
        "http://localhost@evil.example",
        "http://localhost:8000@evil.example",
        "http://127.0.0.1:x@evil.example/tasks",
        "HTTP://evil.example",
    ],
)
def test_no_spelling_of_an_address_makes_a_stranger_of_this_machine(
    tmp_path: Path, url: str
) -> None:
    own = {"DESKHAND_HOME": str(tmp_path), "SERVICE_AUTH_TOKEN": "the desk's own"}
    (tmp_path / ".env").write_text(f"FASTAPI_BASE_URL={url}\n")

    with pytest.raises(BadConfig) as caught:
        load(own, env_file=tmp_path / ".env")

    assert "set both in one place" in str(caught.value.details["fields"])


@requirement("tasks:settings")
@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("HTTP://localhost:8000", "http://localhost:8000"),
        ("Https://Tasks.example/api/", "https://Tasks.example/api"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_the_backends_address_may_be_any_http_or_https_url(
    tmp_path: Path, given: str, kept: str
) -> None:
    loaded = load({"DESKHAND_HOME": str(tmp_path), "FASTAPI_BASE_URL": given})

    assert loaded.settings.fastapi_base_url == kept


@requirement("tasks:settings")
@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:99999",
        "http://localhost:x",
        "http://[::1",
        "http://?x",
        "http://ann:secret@localhost:8000",
        "http://localhost:8000?version=2",
        "http://localhost:8000/#tasks",
    ],
)
def test_an_address_under_which_no_task_could_be_asked_for_is_refused_at_the_start(
    tmp_path: Path, url: str
) -> None:
    with pytest.raises(BadConfig) as caught:
        load({"DESKHAND_HOME": str(tmp_path), "FASTAPI_BASE_URL": url})

    assert [field["field"] for field in caught.value.details["fields"]] == [
        "FASTAPI_BASE_URL"
    ]


@requirement("tasks:settings")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("\ufeffSERVICE_AUTH_TOKEN=abc", "abc"),
        ("'SERVICE_AUTH_TOKEN'=abc", "abc"),
        ('NOTE="first\nSERVICE_AUTH_TOKEN=no\n"\nSERVICE_AUTH_TOKEN=abc', "abc"),
        ("SERVICE_AUTH_TOKEN=abc\nNOTE=\"it is\nSERVICE_AUTH_TOKEN='no\n'\"", "abc"),
        ("SERVICE_AUTH_TOKEN=no\nSERVICE_AUTH_TOKEN=abc", "abc"),
        ("SERVICE_AUTH_TOKEN=${HOME}", "${HOME}"),
        ('SERVICE_AUTH_TOKEN="unended', '"unended'),
        ("NOTE='unended\nSERVICE_AUTH_TOKEN=abc", "abc"),
    ],
)
def test_an_env_file_is_read_as_other_programs_read_it(
    tmp_path: Path, text: str, value: str
) -> None:
    (tmp_path / ".env").write_text(f"{text}\nBACKEND_TIMEOUT=7\n", encoding="utf-8")

    loaded = load({"DESKHAND_HOME": str(tmp_path)}, env_file=tmp_path / ".env")

    assert loaded.settings.service_auth_token.get_secret_value() == value
    assert loaded.settings.backend_timeout == 7
