"""Ollama's routes: conversations and continuations as lines of JSON, vectors, and what models the server has."""

import json
import time
from collections.abc import AsyncIterator
from datetime import datetime, timezone
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from pydantic import AliasChoices, Field

from fastattn._version import VERSION
from fastattn.encoders.encoder import Encoder
from fastattn.errors import FastattnError, InputError
from fastattn.generation.generator import Generator
from fastattn.serve.conversation import Conversation
from fastattn.serve.dialects.body import Body, InjectedService, TextOrTexts, as_list
from fastattn.serve.dialects.chat import EMPTY_IS_NONE, Tool
from fastattn.serve.dialects.sampling import sampling_options
from fastattn.serve.service import ModelAnswers, Service

router = APIRouter(prefix="/api")


class OllamaOptions(Body):
    num_predict: int | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repeat_penalty: Annotated[float, Field(gt=0)] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None  # a negative number: no seed
    stop: list[str] | None = None

    def options(self) -> dict[str, Any]:
        """The options of ``Generator.generate``."""
        max_tokens = self.num_predict if self.num_predict and self.num_predict > 0 else None
        seed = None if self.seed is None or self.seed < 0 else self.seed
        return sampling_options(self, max_tokens, self.repeat_penalty, seed)


class ModelBody(Body):
    model: Annotated[str, Field(validation_alias=AliasChoices("model", "name"))]
    options: OllamaOptions | None = None
    keep_alive: Any = None

    @property
    def name(self) -> str:
        """The model's name in this server: without the tag that clients add."""
        return self.model.removesuffix(":latest")


class AnswerBody(ModelBody):
    stream: bool = True
    format: Literal["", "json"] | dict[str, Any] | None = None
    think: bool | str | None = None

    def conversation(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Conversation:
        options = self.options.options() if self.options else {}
        if self.format:
            options["json_schema"] = {"type": "object"} if self.format == "json" else self.format
        variables = {} if self.think is None else {"enable_thinking": self.think}
        return Conversation(messages, tools, variables=variables, options=options)


class OllamaCall(Body):
    name: str
    arguments: dict[str, Any] = {}


class OllamaMessageCall(Body):
    type: Literal["function"] = "function"
    function: OllamaCall


class OllamaMessage(Body):
    # The fields have the names by which templates read them.
    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    reasoning_content: Annotated[str | None, Field(alias="thinking")] = None
    images: Annotated[list[str] | None, Field(max_length=0, exclude=True)] = None
    tool_calls: Annotated[list[OllamaMessageCall] | None, EMPTY_IS_NONE] = None
    name: Annotated[str | None, Field(alias="tool_name")] = None


class OllamaChatBody(AnswerBody):
    messages: Annotated[list[OllamaMessage], Field(min_length=1)]
    tools: list[Tool] | None = None


class GenerateBody(AnswerBody):
    prompt: str = ""
    system: str | None = None
    raw: bool = False
    images: Annotated[list[str], Field(max_length=0)] | None = None


class OllamaEmbedBody(ModelBody):
    input: TextOrTexts
    truncate: bool = True
    dimensions: Annotated[int, Field(ge=1)] | None = None


class OllamaOldEmbedBody(ModelBody):
    prompt: str


@router.post("/chat", response_model=None)
async def chat(body: OllamaChatBody, service: InjectedService) -> dict[str, Any] | StreamingResponse:
    messages = [message.model_dump(exclude_none=True) for message in body.messages]
    tools = [tool.model_dump(exclude_none=True) for tool in body.tools or ()]
    return await _respond(body, service.stream(body.name, body.conversation(messages, tools)), in_message=True)


@router.post("/generate", response_model=None)
async def generate(body: GenerateBody, service: InjectedService) -> dict[str, Any] | StreamingResponse:
    async with service.models.use(service.models.find(body.name, Generator)) as generator:
        is_raw = body.raw or not generator.has_chat_template
    if is_raw:
        if body.format:
            raise InputError("format goes with no raw prompt")
        options = body.options.options() if body.options else {}
        return await _respond(body, service.stream_completion(body.name, body.prompt, **options), in_message=False)
    messages = [{"role": "system", "content": body.system}] if body.system else []
    messages.append({"role": "user", "content": body.prompt})
    return await _respond(body, service.stream(body.name, body.conversation(messages, [])), in_message=False)


async def _respond(
    body: AnswerBody, pieces: AsyncIterator[Any], in_message: bool
) -> dict[str, Any] | StreamingResponse:
    """The pieces of an answer as lines of JSON, or all as one object.

    in_message  whether texts and calls are fields of a message in each object, as in a conversation's answer
    """
    objects = _answer_objects(body.model, pieces, in_message)
    if body.stream:
        first = await anext(objects)  # awaited before the answer begins, so that an error has its HTTP status
        return StreamingResponse(_json_lines(first, objects), media_type="application/x-ndjson")
    answer: dict[str, Any] = {}
    async for json_object in objects:
        fields = answer.setdefault("message", {}) if in_message else answer
        for name, value in (json_object.pop("message") if in_message else json_object).items():
            is_text = name in ("content", "thinking", "response")
            fields[name] = fields.get(name, "") + value if is_text else value
        answer |= json_object if in_message else {}
    return answer


async def _answer_objects(model: str, pieces: AsyncIterator[Any], in_message: bool) -> AsyncIterator[dict[str, Any]]:
    start, text_field = time.perf_counter_ns(), "content" if in_message else "response"

    def answer_object(fields: dict[str, Any], **end_fields: Any) -> dict[str, Any]:
        created = datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")
        content = {"message": {"role": "assistant", "content": "", **fields}} if in_message else fields
        return {"model": model, "created_at": created, **content, "done": False, **end_fields}

    while not isinstance(piece := await anext(pieces), ModelAnswers):
        kind, text = piece if isinstance(piece, tuple) else ("content", piece)
        yield answer_object({text_field: text} if kind == "content" else {text_field: "", "thinking": text})
    (generation,) = piece.generations
    calls = piece.split_answers[0].calls if piece.split_answers else []
    functions = [{"function": {"name": call.name, "arguments": json.loads(call.arguments)}} for call in calls]
    duration = time.perf_counter_ns() - start
    end_fields = {"done": True, "done_reason": generation.finish_reason, "total_duration": duration, "load_duration": 0}
    end_fields |= {"prompt_eval_count": generation.prompt_length, "prompt_eval_duration": 0}
    end_fields |= {"eval_count": len(generation.tokens), "eval_duration": duration}
    yield answer_object({text_field: "", **({"tool_calls": functions} if functions else {})}, **end_fields)


async def _json_lines(first: dict[str, Any], objects: AsyncIterator[dict[str, Any]]) -> AsyncIterator[str]:
    """Each object as a line; an error that comes after the first line is the last line."""
    yield json.dumps(first) + "\n"
    try:
        async for json_object in objects:
            yield json.dumps(json_object) + "\n"
    except FastattnError as error:
        yield json.dumps({"error": str(error)}) + "\n"


@router.post("/embed")
async def embed(body: OllamaEmbedBody, service: InjectedService) -> dict[str, Any]:
    start = time.perf_counter_ns()
    options = {"normalize_embeddings": True, "truncate_dim": body.dimensions}
    texts = as_list(body.input)
    vectors_BD, token_count, _ = await service.embed(texts, body.name, truncate=body.truncate, count=True, **options)
    measures = {"total_duration": time.perf_counter_ns() - start, "load_duration": 0, "prompt_eval_count": token_count}
    return {"model": body.model, "embeddings": vectors_BD.tolist(), **measures}


@router.post("/embeddings")
async def embeddings(body: OllamaOldEmbedBody, service: InjectedService) -> dict[str, Any]:
    vectors_BD, _, _ = await service.embed([body.prompt], body.name, truncate=True)
    return {"embedding": vectors_BD[0].tolist()}


@router.get("/tags")
async def tags(service: InjectedService) -> dict[str, Any]:
    return {"models": [_model_fields(service, name) for name in service.models.names_of((Generator, Encoder))]}


@router.get("/ps")
async def loaded(service: InjectedService) -> dict[str, Any]:
    """The models in memory."""
    entries, names = service.models.entries, service.models.names_of((Generator, Encoder))
    return {"models": [_model_fields(service, name) for name in names if entries[name].model is not None]}


@router.post("/show")
async def show(body: ModelBody, service: InjectedService) -> dict[str, Any]:
    name = service.models.find(body.name, Generator, Encoder)
    is_generator = service.models.entries[name].kind is Generator
    async with service.models.use(name) as model:
        template = model.chat_template.source if is_generator and model.has_chat_template else ""
        context = model.max_length
    capabilities = ["completion", *(["tools"] if "tools" in template else [])] if is_generator else ["embedding"]
    info = {"general.architecture": "fastattn", "fastattn.context_length": context}
    details = _model_fields(service, name)["details"]
    fields = {"template": template, "details": details, "model_info": info, "capabilities": capabilities}
    return {"modelfile": "", "parameters": "", **fields}


@router.get("/version")
async def version() -> dict[str, str]:
    return {"version": VERSION}


def _model_fields(service: Service, name: str) -> dict[str, Any]:
    kind = service.models.entries[name].kind.__name__.lower()
    details = {"format": "fastattn", "family": kind, "families": [kind], "parameter_size": ""}
    details["quantization_level"] = service.settings.precision
    tagged = f"{name}:latest"
    unknown_fields = {"modified_at": "1970-01-01T00:00:00Z", "size": 0, "digest": ""}
    return {"name": tagged, "model": tagged, **unknown_fields, "details": details}
