import json
from pathlib import Path

import pytest
from pydantic import SecretStr

from deskhand.config import OPTIONS, display, load
from deskhand.errors import BadConfig
from tests.home import Home
from tests.requirements import requirement

BAD_VALUES = {
    "DEV_MODE": "banana",
    "MCP_SERVER_PORT": "99999",
    "MCP_LOG_LEVEL": "loud",
    "FASTAPI_BASE_URL": "ftp://example.org",
    "BACKEND_TIMEOUT": "0",
    "BACKEND_MAX_RETRIES": "-1",
    "DESKHAND_DATABASE_URL": "mysql://x",
    "DESKHAND_APPROVALS": "none",
    "DESKHAND_MODEL": "no colon",
    "VAULT_PATH": " ",
    "SERVICE_AUTH_TOKEN": "",
}


def problems(environment: dict[str, str]) -> dict[str, dict[str, str]]:
    with pytest.raises(BadConfig) as caught:
        load(environment)
    return {field["field"]: field for field in caught.value.details["fields"]}


@requirement("config:errors-name-the-key")
@pytest.mark.parametrize(("variable", "value"), BAD_VALUES.items())
def test_a_bad_value_is_refused_with_key_value_and_allowed_form(
    tmp_path: Path, variable: str, value: str
) -> None:
    problem = problems({"DESKHAND_HOME": str(tmp_path), variable: value})[variable]

    option = next(option for option in OPTIONS.values() if option.variable == variable)
    assert problem["suggestion"] == f"allowed: {option.form}"
    assert problem["received_value"] in (value, "********")


@requirement("config:errors-name-the-key")
def test_every_error_of_file_and_environment_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        'vault = "x"\n[mail]\nkind = "pigeon"\n[agents]\nstore = "database"\n'
    )

    found = problems({"DESKHAND_HOME": str(tmp_path), "DESKHAND_APROVALS": "sealed"})

    assert set(found) == {"vault", "mail.kind", "DESKHAND_APROVALS"}
    assert found["DESKHAND_APROVALS"]["suggestion"] == "did you mean DESKHAND_APPROVALS?"
    assert found["mail.kind"]["received_value"] == "pigeon"


def test_the_environment_wins_over_the_file_and_the_file_over_the_default(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.toml").write_text(
        'port = 4000\nlog_level = "debug"\n[agents]\nstore = "database"\n'
    )

    loaded = load({"DESKHAND_HOME": str(tmp_path), "MCP_SERVER_PORT": "5000"})

    assert (loaded.settings.port, loaded.sources["port"]) == (5000, "environment")
    assert (loaded.settings.log_level, loaded.sources["log_level"]) == (
        "DEBUG",
        "config.toml",
    )
    assert (loaded.settings.agents_store, loaded.sources["agents_store"]) == (
        "database",
        "config.toml",
    )
    assert (loaded.settings.max_sends, loaded.sources["max_sends"]) == (10, "default")


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("port = = 1")

    with pytest.raises(BadConfig, match=r"config\.toml"):
        load({"DESKHAND_HOME": str(tmp_path)})


@requirement("config:sources")
def test_config_show_tells_sources_and_masks_secrets(home: Home) -> None:
    url = "postgresql://desk:hunter2@db.example.org/desk?sslmode=require"

    done = home.command(
        "config",
        "show",
        "--json",
        DESKHAND_DATABASE_URL=url,
        DESKHAND_MODEL_API_KEY="sk-hunter2",
    )

    shown = json.loads(done.stdout)
    assert shown["vault_path"] == {"value": str(home.vault), "source": "environment"}
    assert shown["max_sends"] == {"value": "10", "source": "default"}
    assert (
        shown["database_url"]["value"]
        == "postgresql://desk:********@db.example.org/desk?sslmode=require"
    )
    assert shown["model.api_key"]["value"] == "********"
    assert "hunter2" not in done.stdout


def test_a_bad_configuration_ends_any_command_with_code_3_and_says_why(home: Home) -> None:
    done = home.command("notes", "list", DEV_MODE="banana")

    assert done.returncode == 3
    assert "DEV_MODE" in done.stderr
    assert "'banana'" in done.stderr
    assert "allowed: true or false" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("vault", [None, "/nowhere/at/all"])
def test_a_missing_vault_is_said_before_anything_is_served(
    home: Home, vault: str | None
) -> None:
    variables = {"VAULT_PATH": vault} if vault else {}
    environment = {
        name: value for name, value in home.environment.items() if name != "VAULT_PATH"
    } | variables

    done = Home(home.vault, environment).command("mcp", "obsidian")

    assert done.returncode == 3
    assert "VAULT_PATH" in done.stderr
    assert done.stdout == ""


def test_a_providers_own_key_serves_that_provider_and_nobody_else(tmp_path: Path) -> None:
    base = {
        "DESKHAND_HOME": str(tmp_path),
        "DESKHAND_MODEL": "openai:some",
        "OPENAI_API_KEY": "sk-1",
    }
    assert load(base).settings.model_api_key.get_secret_value() == "sk-1"
    assert (
        load(
            base | {"DESKHAND_MODEL_API_KEY": "sk-2"}
        ).settings.model_api_key.get_secret_value()
        == "sk-2"
    )
    assert load(base | {"DESKHAND_MODEL": "anthropic:some"}).settings.model_api_key is None
    assert (
        load(
            base | {"DESKHAND_MODEL_BASE_URL": "http://127.0.0.1:1"}
        ).settings.model_api_key
        is None
    )


@pytest.mark.parametrize(
    ("written", "meant"), [("seed", "any"), ("any", "any"), ("sealed", "sealed")]
)
def test_the_old_word_for_any_approval_file_is_understood(
    tmp_path: Path, written: str, meant: str
) -> None:
    (tmp_path / "config.toml").write_text(f'approvals = "{written}"\n')

    assert load({"DESKHAND_HOME": str(tmp_path)}).settings.approvals == meant
    assert (
        load(
            {"DESKHAND_HOME": str(tmp_path), "DESKHAND_APPROVALS": written}
        ).settings.approvals
        == meant
    )


@pytest.mark.parametrize(
    ("written", "meant"),
    [(" TRUE ", True), ("on", True), ("1", True), ("No", False), ("0", False)],
)
def test_a_switch_takes_the_usual_words(tmp_path: Path, written: str, meant: bool) -> None:
    assert (
        load({"DESKHAND_HOME": str(tmp_path), "DEV_MODE": written}).settings.dev_mode
        is meant
    )


@requirement("config:sources")
def test_of_several_urls_no_password_is_shown() -> None:
    assert (
        display(SecretStr("mailto://u:p@h ntfy://x:y@z/t"))
        == "mailto://u:********@h ntfy://x:********@z/t"
    )


@requirement("config:errors-name-the-key")
@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a." * 3000 + "b = 1"])
def test_a_file_that_is_nested_without_end_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(text)

    with pytest.raises(BadConfig, match=r"config\.toml.*nested"):
        load({"DESKHAND_HOME": str(tmp_path)})
