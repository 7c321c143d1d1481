"""What the conformance judge calls by name, on the desk's own server class; speaks HTTP on a free port."""

import base64
import json
from collections.abc import Callable
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver.context import Context
from mcp.server.mcpserver.prompts.base import Message, Prompt, UserMessage
from mcp.server.mcpserver.tools import Tool
from mcp.shared.exceptions import MCPError
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    CallToolResult,
    ClientCapabilities,
    Completion,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitationCapability,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    EmbeddedResource,
    EmptyResult,
    ImageContent,
    InputRequest,
    InputRequiredResult,
    ListRootsRequest,
    MissingRequiredClientCapabilityErrorData,
    SamplingCapability,
    SamplingMessage,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    TextResourceContents,
    UnsubscribeRequestParams,
)

from deskhand.errors import NotFound
from deskhand.servers.server import DeskServer
from deskhand.servers.tool import READS, tool

RED_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
SILENCE = base64.b64encode(
    b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x80\x3e\0\0\2\0\x10\0data\0\0\0\0"
).decode()

Ctx = Context[None, Any]


def image() -> ImageContent:
    return ImageContent(data=RED_PIXEL, mime_type="image/png")


def embedded(uri: str, text: str, mime_type: str = "text/plain") -> EmbeddedResource:
    return EmbeddedResource(
        resource=TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    )


def form(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def elicitation(message: str, **properties: Any) -> ElicitRequest:
    return ElicitRequest(
        params=ElicitRequestFormParams(message=message, requested_schema=form(**properties))
    )


def sampling(prompt: str, max_tokens: int) -> CreateMessageRequest:
    message = SamplingMessage(role="user", content=TextContent(text=prompt))
    return CreateMessageRequest(
        params=CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    )


ASK_NAME = elicitation("What is your name?", name={"type": "string"})
ASK_CONFIRM = elicitation("Please confirm", ok={"type": "boolean"})


def answered(ctx: Ctx, *keys: str) -> bool:
    return set(keys) <= set(ctx.input_responses or {})


def required(state: str | None = None, **requests: InputRequest) -> InputRequiredResult:
    return InputRequiredResult(input_requests=requests, request_state=state)


# Content


def test_simple_text() -> str:
    return "This is a simple text response for testing."


def test_image_content() -> ImageContent:
    return image()


def test_audio_content() -> AudioContent:
    return AudioContent(data=SILENCE, mime_type="audio/wav")


def test_embedded_resource() -> EmbeddedResource:
    return embedded("test://embedded-resource", "This is an embedded resource content.")


def test_multiple_content_types() -> CallToolResult:
    data = json.dumps({"test": "data", "value": 123})
    return CallToolResult(
        content=[
            TextContent(text="Multiple content types test:"),
            image(),
            embedded("test://mixed-content-resource", data, "application/json"),
        ]
    )


def test_error_handling() -> str:
    raise NotFound("This tool intentionally returns an error for testing")


# What a tool sends while it runs


async def test_tool_with_logging(ctx: Ctx) -> str:
    for step in (
        "Tool execution started",
        "Tool processing data",
        "Tool execution completed",
    ):
        await ctx.info(step)
    return "logged"


async def test_logging_tool(ctx: Ctx) -> str:
    await ctx.info("only for who asked")
    return "logged"


async def test_tool_with_progress(ctx: Ctx) -> str:
    for progress in (0, 50, 100):
        await ctx.report_progress(progress, 100)
    return "done"


async def test_trigger_tool_change(ctx: Ctx) -> str:
    await ctx.notify_tools_changed()
    return "announced"


async def test_trigger_prompt_change(ctx: Ctx) -> str:
    await ctx.notify_prompts_changed()
    return "announced"


# Questions to the client up to 2025-11-25: requests of their own


async def test_sampling(prompt: str, ctx: Ctx) -> str:
    asked = sampling(prompt, 100).params
    answer = await ctx.session.create_message(
        asked.messages, max_tokens=asked.max_tokens, related_request_id=ctx.request_id
    )
    return f"LLM response: {answer.content.text if isinstance(answer.content, TextContent) else ''}"


async def ask(ctx: Ctx, message: str, schema: dict[str, Any]) -> ElicitResult:
    return await ctx.session.elicit_form(message, schema, ctx.request_id)


async def test_elicitation(message: str, ctx: Ctx) -> str:
    text = {"type": "string"}
    answer = await ask(ctx, message, form(username=text, email=text))
    return f"User response: action={answer.action}, content={answer.content}"


async def test_elicitation_sep1034_defaults(ctx: Ctx) -> str:
    schema = form(
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        verified={"type": "boolean", "default": True},
    )
    answer = await ask(ctx, "Please review", schema)
    return f"Elicitation completed: action={answer.action}, content={answer.content}"


async def test_elicitation_sep1330_enums(ctx: Ctx) -> str:
    plain = {"type": "string", "enum": ["option1", "option2", "option3"]}
    titled = [
        {"const": f"value{n}", "title": f"{word} Option"}
        for n, word in enumerate(("First", "Second"), 1)
    ]
    schema = form(
        untitledSingle=plain,
        titledSingle={"type": "string", "oneOf": titled},
        legacyEnum={
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        untitledMulti={"type": "array", "items": plain},
        titledMulti={"type": "array", "items": {"anyOf": titled}},
    )
    answer = await ask(ctx, "Please choose", schema)
    return f"Elicitation completed: action={answer.action}, content={answer.content}"


# Questions to the client since 2026-07-28: a result that asks for more


def test_missing_capability(ctx: Ctx) -> str:
    if ctx.client_capabilities and ctx.client_capabilities.sampling is not None:
        return "the client can sample"
    missing = MissingRequiredClientCapabilityErrorData(
        required_capabilities=ClientCapabilities(sampling=SamplingCapability())
    )
    raise MCPError(
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        "sampling is required",
        missing.model_dump(by_alias=True, mode="json", exclude_none=True),
    )


def test_streaming_elicitation(ctx: Ctx) -> str | InputRequiredResult:
    return "confirmed" if answered(ctx, "confirm") else required(confirm=ASK_CONFIRM)


def test_input_required_result_elicitation(ctx: Ctx) -> str | InputRequiredResult:
    match (ctx.input_responses or {}).get("user_name"):
        case ElicitResult(action="accept", content={"name": str(name)}):
            return f"Hello, {name}!"
        case _:
            return required(user_name=ASK_NAME)


def test_input_required_result_sampling(ctx: Ctx) -> str | InputRequiredResult:
    question = sampling("What is the capital of France?", 100)
    return (
        "answered"
        if answered(ctx, "capital_question")
        else required(capital_question=question)
    )


def test_input_required_result_list_roots(ctx: Ctx) -> str | InputRequiredResult:
    return (
        "answered"
        if answered(ctx, "client_roots")
        else required(client_roots=ListRootsRequest())
    )


def test_input_required_result_request_state(ctx: Ctx) -> str | InputRequiredResult:
    if answered(ctx, "confirm") and ctx.request_state == "asked":
        return "state-ok"
    return required("asked", confirm=ASK_CONFIRM)


def test_input_required_result_tampered_state(ctx: Ctx) -> str | InputRequiredResult:
    return test_input_required_result_request_state(ctx)


def test_input_required_result_multiple_inputs(ctx: Ctx) -> str | InputRequiredResult:
    if (
        answered(ctx, "user_name", "greeting", "client_roots")
        and ctx.request_state == "asked"
    ):
        return "answered"
    greeting = sampling("Generate a greeting", 50)
    return required(
        "asked", user_name=ASK_NAME, greeting=greeting, client_roots=ListRootsRequest()
    )


def test_input_required_result_multi_round(ctx: Ctx) -> str | InputRequiredResult:
    match ctx.request_state:
        case "second" if answered(ctx, "step2"):
            return "answered"
        case "first" if answered(ctx, "step1"):
            return required(
                "second",
                step2=elicitation(
                    "Step 2: What is your favorite color?", color={"type": "string"}
                ),
            )
        case _:
            return required(
                "first",
                step1=elicitation("Step 1: What is your name?", name={"type": "string"}),
            )


def test_input_required_result_capabilities(ctx: Ctx) -> str | InputRequiredResult:
    can = ctx.client_capabilities or ClientCapabilities()
    requests: dict[str, InputRequest] = {}
    if isinstance(can.elicitation, ElicitationCapability):
        requests["user_name"] = ASK_NAME
    if isinstance(can.sampling, SamplingCapability):
        requests["greeting"] = sampling("Generate a greeting", 50)
    return "nothing to ask" if answered(ctx, *requests) else required(None, **requests)


FIXTURES = (
    test_simple_text,
    test_image_content,
    test_audio_content,
    test_embedded_resource,
    test_multiple_content_types,
    test_error_handling,
    test_tool_with_logging,
    test_logging_tool,
    test_tool_with_progress,
    test_trigger_tool_change,
    test_trigger_prompt_change,
    test_sampling,
    test_elicitation,
    test_elicitation_sep1034_defaults,
    test_elicitation_sep1330_enums,
    test_missing_capability,
    test_streaming_elicitation,
    test_input_required_result_elicitation,
    test_input_required_result_sampling,
    test_input_required_result_list_roots,
    test_input_required_result_request_state,
    test_input_required_result_tampered_state,
    test_input_required_result_multiple_inputs,
    test_input_required_result_multi_round,
    test_input_required_result_capabilities,
)


def fixture_tool(fn: Callable[..., Any]) -> Tool:
    made = tool(fn, title=fn.__name__.replace("_", " ").capitalize(), annotations=READS)
    made.description = "A fixture of the conformance judge."
    return made


def add_prompts(server: DeskServer) -> None:
    def test_simple_prompt() -> str:
        return "This is a simple prompt for testing."

    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    def test_prompt_with_embedded_resource(resourceUri: str) -> list[Message]:  # noqa: N803 - the judge's name
        resource = embedded(resourceUri, "Embedded resource content for testing.")
        return [
            UserMessage(resource),
            UserMessage("Please process the embedded resource above."),
        ]

    def test_prompt_with_image() -> list[Message]:
        return [UserMessage(image()), UserMessage("Please analyze the image above.")]

    def test_input_required_result_prompt(ctx: Ctx) -> str | InputRequiredResult:
        question = elicitation(
            "What context should the prompt use?", context={"type": "string"}
        )
        return (
            "Use the context."
            if answered(ctx, "user_context")
            else required(user_context=question)
        )

    for fn in (
        test_simple_prompt,
        test_prompt_with_arguments,
        test_prompt_with_embedded_resource,
        test_prompt_with_image,
        test_input_required_result_prompt,
    ):
        server.add_prompt(
            Prompt.from_function(fn, description="A fixture of the conformance judge.")
        )


def add_resources(server: DeskServer) -> None:
    @server.resource("test://static-text", mime_type="text/plain")
    def static_text() -> str:
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        return base64.b64decode(RED_PIXEL)

    @server.resource("test://watched-resource", mime_type="text/plain")
    def watched_resource() -> str:
        return "Watched."

    @server.resource("test://template/{id}/data", mime_type="application/json")
    def template_data(id: str) -> str:  # noqa: A002 - the judge's name
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


def add_methods(server: DeskServer) -> None:
    """Methods that no server of the desk has, but the judge demands of one."""

    @server.completion()  # type: ignore[no-untyped-call, untyped-decorator]
    async def complete(*_: object) -> Completion:
        return Completion(values=["test"], total=1, has_more=False)

    async def accept(_context: ServerRequestContext[Any], _params: object) -> EmptyResult:
        return EmptyResult()

    low_level = server._lowlevel_server
    low_level.add_request_handler("logging/setLevel", SetLevelRequestParams, accept)
    low_level.add_request_handler("resources/subscribe", SubscribeRequestParams, accept)
    low_level.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, accept)


def conformance_server() -> DeskServer:
    server = DeskServer(
        "conformance", [fixture_tool(fn) for fn in FIXTURES], log_level="WARNING"
    )
    add_prompts(server)
    add_resources(server)
    add_methods(server)
    return server


if __name__ == "__main__":
    anyio.run(conformance_server().run_http_async, 0)
