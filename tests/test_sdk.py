"""What the desk uses of the MCP SDK although it is not offered: a new version that changes it is seen here first."""

import inspect
import re
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata

import deskhand

PACKAGE = Path(deskhand.__file__).parent
PRIVATE = re.compile(
    r"\b_(?:tool_manager|lowlevel_server|handle_\w+)\b|\bfn_metadata\b|func_metadata"
)


def parameters(function: object) -> list[str]:
    assert callable(function)
    return list(inspect.signature(function).parameters)


def test_the_sdk_still_has_each_name_that_it_keeps_to_itself() -> None:
    server = MCPServer("x")

    assert callable(server._lowlevel_server.run)
    assert callable(server._lowlevel_server.create_initialization_options)
    assert isinstance(server._lowlevel_server.middleware, list)
    assert parameters(MCPServer._handle_list_resources) == ["self", "ctx", "params"]
    assert parameters(FuncMetadata.validate_arguments) == ["self", "arguments_to_validate"]
    assert parameters(FuncMetadata.pre_parse_json) == ["self", "data"]
    assert parameters(FuncMetadata.convert_result) == ["self", "result"]
    assert {
        "arg_model",
        "output_schema",
        "output_model",
        "wrap_output",
    } <= FuncMetadata.model_fields.keys()
    assert {"parameters", "fn_metadata"} <= Tool.model_fields.keys()


def test_only_one_module_uses_them() -> None:
    users = {
        file.name for file in PACKAGE.rglob("*.py") if PRIVATE.search(file.read_text())
    }

    assert users == {"sdk.py"}
