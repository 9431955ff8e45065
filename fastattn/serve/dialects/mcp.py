"""The Model Context Protocol, by which assistants call tools: over HTTP without sessions, or on stdin and stdout."""

import asyncio
import base64
import contextlib
import ipaddress
import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, BinaryIO, Literal, NamedTuple
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from pydantic import Field, ValidationError
from starlette.responses import JSONResponse, Response

from fastattn._version import VERSION
from fastattn.documents.forms import TEXT_FORMS
from fastattn.errors import FastattnError
from fastattn.serve.dialects.body import STRICT, Body, InjectedService, Texts, describe
from fastattn.serve.gate import KeyQuota
from fastattn.serve.service import AUTO, DOCUMENT_FORMS, QUOTA, Service
from fastattn.serve.settings import ServerSettings
from fastattn.vectors.search import semantic_search

router = APIRouter()
PROTOCOLS = ("2025-06-18", "2025-03-26", "2024-11-05")  # the first is answered to a client that asks for another
INVALID_REQUEST, UNKNOWN_METHOD, INVALID_PARAMS, FAULT, NO_JSON = -32600, -32601, -32602, -32603, -32700
Language = Annotated[str, Field(description="a code such as en, or auto")]


class TranslateBody(Body):
    texts: Texts
    target: Annotated[str, Field(description="the language to translate to, a code such as pt")]
    source: Language = AUTO


class TranslateDocumentBody(Body):
    content: Annotated[
        str, Field(description=f"the document; in base64 unless the form is one of {', '.join(TEXT_FORMS)}")
    ]
    form: Literal[tuple(DOCUMENT_FORMS)]  # type: ignore[valid-type]
    target: str
    source: Language = AUTO


class VectorsBody(Body):
    texts: Texts
    model: str | None = None


class SearchBody(VectorsBody):
    query: str
    top_k: Annotated[int, Field(ge=1)] = 5


async def _translate(service: Service, body: TranslateBody) -> Any:
    return [result.text for result in await service.translate(body.texts, body.source, body.target)]


async def _translate_document(service: Service, body: TranslateDocumentBody) -> Any:
    call = body.form, body.source, body.target
    if body.form in TEXT_FORMS:
        (translation,) = await service.translate_text_documents([body.content], *call)
        return translation.text
    data = base64.b64decode("".join(body.content.split()), validate=True)
    (document,), _, _ = await service.translate_documents([data], *call)
    return base64.b64encode(document).decode()


async def _embed(service: Service, body: VectorsBody) -> Any:
    vectors_BD, _, _ = await service.embed(body.texts, body.model, truncate=True)
    return vectors_BD.tolist()


async def _search(service: Service, body: SearchBody) -> Any:
    vectors_BD, _, _ = await service.embed([body.query, *body.texts], body.model, truncate=True)
    result = await asyncio.to_thread(semantic_search, vectors_BD[0], vectors_BD[1:], body.top_k)
    pairs = zip(result.ids.tolist(), result.scores.tolist())
    return [{"index": number, "score": score, "text": body.texts[number]} for number, score in pairs if number >= 0]


class AssistantTool(NamedTuple):
    """A tool: what it is for, the model of its arguments, and its function, whose result is JSON."""

    description: str
    body: type[Body]
    call: Callable[[Service, Any], Awaitable[Any]]


TOOLS = {
    "translate": AssistantTool("Translate texts.", TranslateBody, _translate),
    "translate_document": AssistantTool(
        "Translate a document, which keeps its form; a pdf becomes html.", TranslateDocumentBody, _translate_document
    ),
    "embed": AssistantTool("Make a vector of each text.", VectorsBody, _embed),
    "search": AssistantTool("Find the texts that are nearest in meaning to a query.", SearchBody, _search),
}


async def answer(message: Any, service: Service) -> dict[str, Any] | None:
    """The answer to a JSON-RPC message; None for a notification."""
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        return _error(None, INVALID_REQUEST, "expected a JSON-RPC request, an object with a method")
    if "id" not in message:
        return None
    if isinstance(message["id"], bool) or not isinstance(message["id"], int | str):
        return _error(None, INVALID_REQUEST, "an id should be a number without a fraction, or a text")
    params = message.get("params") or {}
    result: dict[str, Any] = {}
    match message["method"]:
        case "initialize":
            version = params.get("protocolVersion") if isinstance(params, dict) else None
            result["protocolVersion"] = version if version in PROTOCOLS else PROTOCOLS[0]
            result |= {"capabilities": {"tools": {}}, "serverInfo": {"name": "fastattn", "version": VERSION}}
        case "ping":
            pass
        case "tools/list":
            result["tools"] = [
                {"name": name, "description": tool.description, "inputSchema": tool.body.model_json_schema()}
                for name, tool in TOOLS.items()
            ]
        case "tools/call" if isinstance(params, dict) and params.get("name") in [*TOOLS]:
            result = await _call(TOOLS[params["name"]], params.get("arguments") or {}, service)
        case "tools/call":
            return _error(message["id"], INVALID_PARAMS, f"no such tool; there are {', '.join(TOOLS)}")
        case _:
            return _error(message["id"], UNKNOWN_METHOD, "no such method")
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


async def _call(tool: AssistantTool, arguments: Any, service: Service) -> dict[str, Any]:
    """A tool's result as text, or what it refuses: an assistant reads that and may call again."""
    is_error = True
    try:
        result = await tool.call(service, tool.body.model_validate(arguments))
        text, is_error = json.dumps(result, ensure_ascii=False), False
    except ValidationError as error:
        text = describe(error.errors())
    except (FastattnError, ValueError) as error:
        text = str(error)
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def _error(number: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}


@router.post("/mcp", summary="Model Context Protocol")
async def post(request: Request, service: InjectedService) -> Response:
    """A message of JSON-RPC; notifications get 202. Pages of other origins are refused unless --cors allows them."""
    origin, origins = request.headers.get("origin"), service.settings.origins
    if origin and "*" not in origins and origin not in origins and not _is_own(origin, request.headers.get("host")):
        return JSONResponse(_error(None, INVALID_REQUEST, "this origin may not ask"), 403)
    try:
        message = json.loads(await request.body())
    except (ValueError, RecursionError):
        return JSONResponse(_error(None, NO_JSON, "expected JSON"), 400)
    result = await answer(message, service)
    return Response(status_code=202) if result is None else JSONResponse(result)


def _is_own(origin: str, host: str | None) -> bool:
    """Whether an origin is this server, by its address: a name may be another page's that now leads here."""
    try:
        address = urlsplit(origin)
        if address.hostname != "localhost":
            ipaddress.ip_address(address.hostname or "")
    except ValueError:
        return False
    return address.netloc == host


def run_stdio(settings: ServerSettings, lines: BinaryIO | None = None, output: BinaryIO | None = None) -> None:
    """Answer messages of JSON-RPC, one a line, until the input ends; all else that is printed goes to stderr."""
    if lines is None or output is None:
        if sys.stdin is None or sys.stdout is None:
            raise FastattnError("--mcp needs standard input and output, and one of them is closed")
        lines, output = sys.stdin.buffer, sys.stdout.buffer
    with contextlib.redirect_stdout(sys.stderr):
        asyncio.run(_serve_lines(Service(settings), lines, output))


async def _serve_lines(service: Service, lines: BinaryIO, output: BinaryIO) -> None:
    QUOTA.set(KeyQuota())
    STRICT.set(service.settings.strict)
    tasks = set[asyncio.Task[None]]()

    async def answer_line(line: bytes) -> None:
        result = await _answer_line(line, service)
        if result is not None:
            with contextlib.suppress(OSError):  # the client does not read any more, and will close our input
                output.write(json.dumps(result).encode() + b"\n")
                output.flush()

    async with service.running():
        while line := await asyncio.to_thread(lines.readline):
            if line.strip():
                task = asyncio.create_task(answer_line(line))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)


async def _answer_line(line: bytes, service: Service) -> dict[str, Any] | None:
    """The answer to a line, also if it is no JSON, takes too long, or shows a fault of ours."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return _error(None, NO_JSON, "expected JSON")
    number = message.get("id") if isinstance(message, dict) else None
    try:
        return await asyncio.wait_for(answer(message, service), service.settings.timeout)
    except asyncio.TimeoutError:
        return _error(number, FAULT, f"no answer within {service.settings.timeout:g} s")
    except Exception:  # noqa: BLE001  the client waits for an answer
        traceback.print_exc()
        return _error(number, FAULT, "the server has a fault, which its log has")
