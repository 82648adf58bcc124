"""The server: the tools, resources and the prompt, over standard input and output."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from .. import __version__
from ..errors import AttncalcError
from .calls import SECONDS, answer, screen_of
from .texts import printed_by, resources, text
from .tools import Tool, tools

# The scheme of the resources' addresses.
_SCHEME = "attncalc://"
_MODEL = "the model"


def serve(*, has_network: bool) -> None:
    """Serve until the client closes standard input. Files below the working directory may be
    read.
    """
    anyio.run(_serve, Path.cwd(), has_network)


async def _serve(root: Path, has_network: bool) -> None:
    server = _server(root, has_network=has_network)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def _server(root: Path, *, has_network: bool) -> Server[Any]:
    """Return the server, whose calls read files below `root`."""

    async def call(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = tools().get(params.name)
        if tool is None:
            return _error(f"error: there is no tool '{params.name}'")

        async def tell(seconds: float) -> None:
            await context.session.report_progress(seconds, SECONDS, "computes")

        found = await answer(tool, params.arguments or {}, root, has_network=has_network, tell=tell)
        if found.data is None:
            return _error(found.text)
        return types.CallToolResult(content=[_text(found.text)], structured_content=found.data)

    return Server(
        "attncalc",
        version=__version__,
        title="attncalc",
        instructions=text("instructions"),
        on_list_tools=_list_tools,
        on_call_tool=call,
        on_list_resources=_list_resources,
        on_read_resource=_read_resource,
        on_list_prompts=_list_prompts,
        on_get_prompt=_get_prompt,
    )


async def _list_tools(context: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=_described())


@cache
def _described() -> list[types.Tool]:
    return [_tool(tool) for tool in tools().values()]


def _tool(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.arguments,
        output_schema=tool.answer,
        annotations=types.ToolAnnotations(
            read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
        ),
    )


def _text(content: str) -> types.TextContent:
    return types.TextContent(type="text", text=content)


def _error(content: str) -> types.CallToolResult:
    return types.CallToolResult(content=[_text(content)], is_error=True)


async def _list_resources(context: Any, params: Any) -> types.ListResourcesResult:
    return types.ListResourcesResult(
        resources=[
            types.Resource(
                name=name, uri=f"{_SCHEME}{name}", description=described, mime_type="text/plain"
            )
            for name, described in resources().items()
        ]
    )


async def _read_resource(
    context: Any, params: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    uri = str(params.uri)
    try:
        words = printed_by(uri.removeprefix(_SCHEME))
    except AttncalcError as error:
        raise MCPError(types.INVALID_PARAMS, error.message) from None
    content = await screen_of(words)
    return types.ReadResourceResult(
        contents=[types.TextResourceContents(uri=uri, mime_type="text/plain", text=content)]
    )


async def _list_prompts(context: Any, params: Any) -> types.ListPromptsResult:
    argument = types.PromptArgument(name="model", description="The model, as qwen3-8b.")
    return types.ListPromptsResult(
        prompts=[
            types.Prompt(
                name="size-a-deployment",
                description="How many GPUs serve a model to so many users.",
                arguments=[argument],
            )
        ]
    )


async def _get_prompt(context: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    model = (params.arguments or {}).get("model") or _MODEL
    message = types.PromptMessage(role="user", content=_text(text("sizing").format(model=model)))
    return types.GetPromptResult(messages=[message])
