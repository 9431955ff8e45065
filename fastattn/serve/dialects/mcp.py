"""The Model Context Protocol, by which assistants call tools: over HTTP without sessions, or on stdin and stdout."""

import asyncio
import base64
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, BinaryIO, Literal, NamedTuple
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from pydantic import Field, ValidationError
from starlette.responses import JSONResponse, Response

from fastattn._version import VERSION
from fastattn.documents.forms import TEXT_FORMS
from fastattn.errors import FastattnError
from fastattn.serve.dialects.body import Body, InjectedService, Texts
from fastattn.serve.gate import KeyQuota
from fastattn.serve.service import AUTO, DOCUMENT_FORMS, QUOTA, Service
from fastattn.serve.settings import ServerSettings

router = APIRouter()
PROTOCOLS = ("2025-06-18", "2025-03-26", "2024-11-05")  # the first is answered to a client that asks for another
INVALID_REQUEST, UNKNOWN_METHOD, INVALID_PARAMS, NO_JSON = -32600, -32601, -32602, -32700
Language = Annotated[str, Field(description="a code such as en, or auto")]


class TranslateBody(Body):
    texts: Texts
    target: Annotated[str, Field(description="the language to translate to, a code such as pt")]
    source: Language = AUTO


class TranslateDocumentBody(Body):
    content: Annotated[str, Field(description="the document; in base64 unless the form is one of text")]
    form: Literal[tuple(DOCUMENT_FORMS)]  # type: ignore[valid-type]
    target: str
    source: Language = AUTO


class VectorsBody(Body):
    texts: Texts
    model: str | None = None


class SearchBody(Body):
    query: str
    texts: Texts
    top_k: Annotated[int, Field(ge=1)] = 5
    model: str | None = None


async def _translate(service: Service, body: TranslateBody) -> Any:
    return [result.text for result in await service.translate(body.texts, body.source, body.target)]


async def _translate_document(service: Service, body: TranslateDocumentBody) -> Any:
    is_text = body.form in TEXT_FORMS
    data = body.content.encode() if is_text else base64.b64decode(body.content)
    [(document, _)] = await service.translate_documents([data], body.form, body.source, body.target)
    return document.decode() if is_text else base64.b64encode(document).decode()


async def _embed(service: Service, body: VectorsBody) -> Any:
    vectors_BD, _, _ = await service.embed(body.texts, body.model, truncate=True)
    return vectors_BD.tolist()


async def _search(service: Service, body: SearchBody) -> Any:
    texts = [body.query, *body.texts]
    vectors_BD, _, _ = await service.embed(texts, body.model, truncate=True, normalize_embeddings=True)
    scores = (vectors_BD[1:] @ vectors_BD[0]).tolist()
    best = sorted(range(len(scores)), key=lambda number: -scores[number])[: body.top_k]
    return [{"index": number, "score": scores[number], "text": body.texts[number]} for number in best]


class AssistantTool(NamedTuple):
    """A tool: what it is for, the model of its arguments, and its function, whose result is JSON."""

    description: str
    body: type[Body]
    call: Callable[[Service, Any], Awaitable[Any]]


TOOLS = {
    "translate": AssistantTool("Translate texts.", TranslateBody, _translate),
    "translate_document": AssistantTool(
        "Translate a document, which keeps its form.", TranslateDocumentBody, _translate_document
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
        case "tools/call" if isinstance(params, dict) and params.get("name") in TOOLS:
            result = await _call(TOOLS[params["name"]], params.get("arguments") or {}, service)
        case "tools/call":
            return _error(message["id"], INVALID_PARAMS, f"no such tool; there are {', '.join(TOOLS)}")
        case _:
            return _error(message["id"], UNKNOWN_METHOD, "no such method")
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


async def _call(tool: AssistantTool, arguments: Any, service: Service) -> dict[str, Any]:
    """A tool's result as text, or what it refuses: an assistant reads that and may call again."""
    try:
        text, is_error = (
            json.dumps(await tool.call(service, tool.body.model_validate(arguments)), ensure_ascii=False),
            False,
        )
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()[:3])
        text, is_error = "; ".join(problems), True
    except (FastattnError, ValueError) as error:
        text, is_error = str(error), True
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def _error(number: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}


@router.post("/mcp", summary="Model Context Protocol")
async def post(request: Request, service: InjectedService) -> Response:
    """A message of JSON-RPC; notifications get 202. Pages of other origins are refused unless --cors allows them."""
    origin, origins = request.headers.get("origin"), service.settings.origins
    if (
        origin
        and "*" not in origins
        and origin not in origins
        and urlsplit(origin).netloc != request.headers.get("host")
    ):
        return JSONResponse(_error(None, INVALID_REQUEST, "this origin may not ask"), 403)
    try:
        message = json.loads(await request.body())
    except (ValueError, RecursionError):
        return JSONResponse(_error(None, NO_JSON, "expected JSON"), 400)
    result = await answer(message, service)
    return Response(status_code=202) if result is None else JSONResponse(result)


def run_stdio(
    settings: ServerSettings, lines: BinaryIO = sys.stdin.buffer, output: BinaryIO = sys.stdout.buffer
) -> None:
    """Answer messages of JSON-RPC, one a line, until the input ends."""
    asyncio.run(_serve_lines(Service(settings), lines, output))


async def _serve_lines(service: Service, lines: BinaryIO, output: BinaryIO) -> None:
    QUOTA.set(KeyQuota())
    await service.models.load_all(keep_going=False)
    tasks = set[asyncio.Task[None]]()

    async def answer_line(line: bytes) -> None:
        try:
            result = await answer(json.loads(line), service)
        except (ValueError, RecursionError):
            result = _error(None, NO_JSON, "expected JSON")
        if result is not None:
            output.write(json.dumps(result).encode() + b"\n")
            output.flush()

    while line := await asyncio.to_thread(lines.readline):
        task = asyncio.create_task(answer_line(line))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    service.models.close_unused(idle_seconds=0.0)
    service.close()
