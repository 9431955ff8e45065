"""The server with other people's clients, unmodified, as their users call them."""

import asyncio
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bench.checks import Data, Findings, check, need
from bench.server import SERVE, running
from fastattn import Encoder, Generator, Translator

TEXTS = ["Good morning, my friend.", "Where is the station? It is late."]
TALK = [{"role": "user", "content": "What is the capital of France?"}]
PAGE, PAGE_PT = "<p>Good <b>morning</b>.</p>", "<p>Bom <b>dia</b>.</p>"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": SCHEMA}}
CALLED = [
    *TALK,
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}]},
    {"role": "tool", "tool_call_id": "1", "content": "sunny"},
]  # fmt: skip
MODELS = ("en-pt", "minilm", "lm=smollm2", "splade-tiny")
PACKAGES = (
    "openai mcp deepl libretranslatepy ollama huggingface_hub cohere litellm langchain_openai llama_index "
    "haystack".split()
)
LEAST_CALLS = 110
Calls = Iterator[tuple[str, Callable[[], Any]]]  # a call's name, and what is true of its answer


class Expected:
    """The Python API's own answers."""

    def __init__(self) -> None:
        self.translated = Translator("en-pt").translate(TEXTS)
        self.vectors_BD = Encoder("minilm").encode(TEXTS)
        generator = Generator("smollm2")
        self.answer = generator.generate(messages=TALK, max_new_tokens=24)
        self.continuation = generator.generate(TEXTS[0], max_new_tokens=12)

    def are_vectors(self, vectors: Any) -> bool:
        return np.array_equal(np.array(vectors, np.float32), self.vectors_BD)


@check(
    "serve-clients",
    f"at least {LEAST_CALLS} calls of the packages {', '.join(PACKAGES)}, unmodified, against one server: each gets "
    "what the API gives, or what its user asks for",
)
def clients(findings: Findings, data: Data) -> None:
    need(*PACKAGES, "fastapi", "py3langid", "llguidance")
    expected, count, failed = Expected(), 0, list[str]()
    models = [word for name in MODELS for word in ("-m", name)]
    with running([*SERVE, *models]) as server:
        for calls in (
            _openai,
            _chat_fields,
            _responses,
            _mcp,
            _deepl,
            _libretranslate,
            _ollama,
            _hub,
            _frameworks,
        ):
            for name, call in calls(server.address, expected):
                count += 1
                try:
                    if not call():
                        failed.append(f"{name}: another answer")
                except Exception as error:  # noqa: BLE001  whatever a client raises is its call's fault
                    failed.append(f"{name}: {type(error).__name__} {str(error)[:120]}")
    findings.at_least("calls", count, "", LEAST_CALLS)
    findings.at_most("failed", len(failed), "", 0, "; ".join(failed))


def _openai(address: str, expected: Expected) -> Calls:
    import openai

    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none")
    embed = client.embeddings.create

    def vectors(**options: Any) -> list[list[float]]:
        return [item.embedding for item in embed(model="minilm", input=TEXTS, **options).data]

    yield "openai vectors, base64", lambda: expected.are_vectors(vectors())
    yield "openai vectors, float", lambda: expected.are_vectors(vectors(encoding_format="float"))
    yield "openai vectors, unknown field", lambda: expected.are_vectors(vectors(extra_body={"wished": 1}, user="u"))
    yield "openai vectors, dimensions", lambda: np.shape(vectors(dimensions=100)) == (2, 100)
    yield "openai vectors, ids", lambda: len(embed(model="minilm", input=[[2204, 2851], [101]]).data) == 2
    yield "openai vectors, usage", lambda: embed(model="minilm", input="a").usage.total_tokens == 3
    yield "openai models", lambda: {"minilm", "lm"} <= {model.id for model in client.models.list()}
    prompt: dict[str, Any] = {"model": "lm", "prompt": TEXTS[0], "max_tokens": 12}
    complete = client.completions.create
    yield "openai completion", lambda: complete(**prompt).choices[0].text == expected.continuation
    yield (
        "openai completion, streamed",
        lambda: ("".join(chunk.choices[0].text for chunk in complete(**prompt, stream=True)) == expected.continuation),
    )
    yield (
        "openai completion, echo",
        lambda: (complete(**prompt, echo=True).choices[0].text == TEXTS[0] + expected.continuation),
    )
    yield (
        "openai completion, logprobs",
        lambda: (len(complete(**prompt, logprobs=1, echo=True).choices[0].logprobs.token_logprobs) > 12),
    )
    yield "openai completion, prompts", lambda: len(complete(**(prompt | {"prompt": TEXTS})).choices) == 2
    yield "openai completion, ids", lambda: complete(**(prompt | {"prompt": [1, 2, 3]})).usage.prompt_tokens == 3
    yield "openai completion, n", lambda: len(complete(**prompt, n=2, temperature=1.0, seed=1).choices) == 2

    def refused() -> bool:
        try:
            client.chat.completions.create(model="nothing", messages=TALK)
        except openai.NotFoundError as error:
            return "no such model" in str(error)
        return False

    yield "openai unknown model", refused


def _chat_fields(address: str, expected: Expected) -> Calls:
    import openai

    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none")

    def chat(**fields: Any) -> Any:
        return client.chat.completions.create(**{"model": "lm", "messages": TALK, "max_tokens": 24, **fields})

    def text(**fields: Any) -> str:
        return chat(**fields).choices[0].message.content

    def streamed(**fields: Any) -> list[Any]:
        return list(chat(**fields, stream=True, stream_options={"include_usage": True}))

    def call(**fields: Any) -> Any:
        return chat(max_tokens=60, tools=[TOOL], **fields).choices[0]

    same: dict[str, dict[str, Any]] = {
        "plain": {},
        "store, metadata": {"store": True, "metadata": {"a": "b"}},
        "parallel_tool_calls": {"parallel_tool_calls": False},
        "reasoning_effort, verbosity": {"reasoning_effort": "low", "verbosity": "low"},
        "user, service_tier": {"user": "u", "service_tier": "auto"},
        "text parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": TALK[0]["content"]}]}]},
        "named author": {"messages": [{**TALK[0], "name": "n"}]},
        "response_format text": {"response_format": {"type": "text"}},
        "temperature 0": {"temperature": 0},
        "max_completion_tokens": {"max_completion_tokens": 24, "max_tokens": 5},
        "tools that are not called": {"tools": [TOOL], "tool_choice": "none"},
        "n 1, penalties 0": {"n": 1, "presence_penalty": 0, "frequency_penalty": 0},
        "neutral min_p, repetition_penalty": {"extra_body": {"min_p": 0.0, "repetition_penalty": 1.0}},
    }
    for name, fields in same.items():
        yield f"openai chat, {name}", lambda fields=fields: text(**fields) == expected.answer
    yield (
        "openai chat, streamed",
        lambda: ("".join(chunk.choices[0].delta.content or "" for chunk in streamed()[:-1]) == expected.answer),
    )
    yield (
        "openai chat, usage of a stream",
        lambda: streamed()[-1].usage.completion_tokens == chat().usage.completion_tokens,
    )
    yield "openai chat, tool's result", lambda: bool(text(messages=CALLED))
    yield "openai chat, developer", lambda: bool(text(messages=[{"role": "developer", "content": "Be brief."}, *TALK]))
    yield "openai chat, json_object", lambda: text(response_format={"type": "json_object"}).startswith("{")
    named = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA, "strict": True}}
    yield "openai chat, json_schema", lambda: set(json.loads(text(response_format=named, max_tokens=60))) == {"city"}
    yield (
        "openai chat, logprobs",
        lambda: (len(chat(logprobs=True).choices[0].logprobs.content) == chat().usage.completion_tokens),
    )
    yield "openai chat, tools", lambda: call(tool_choice="auto").finish_reason in ("stop", "length", "tool_calls")
    yield (
        "openai chat, tool required",
        lambda: (set(json.loads(call(tool_choice="required").message.tool_calls[0].function.arguments)) == {"city"}),
    )
    choice = {"type": "function", "function": {"name": "weather"}}
    yield "openai chat, tool named", lambda: call(tool_choice=choice).message.tool_calls[0].function.name == "weather"
    yield (
        "openai chat, tool streamed",
        lambda: any(
            chunk.choices[0].delta.tool_calls
            for chunk in streamed(max_tokens=60, tools=[TOOL], tool_choice="required")[:-1]
        ),
    )
    yield "openai chat, samples", lambda: len(chat(n=3, temperature=1.0, seed=7).choices) == 3
    yield "openai chat, seed", lambda: text(temperature=1.0, seed=7) == text(temperature=1.0, seed=7)
    sampling = {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1}
    yield "openai chat, top_k and its like", lambda: bool(text(temperature=0.7, top_p=0.9, extra_body=sampling))
    yield "openai chat, stop", lambda: "\n" not in text(stop=["\n"])
    yield "openai chat, template", lambda: bool(text(extra_body={"chat_template_kwargs": {"enable_thinking": False}}))


def _responses(address: str, expected: Expected) -> Calls:
    import openai

    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none")

    def respond(**fields: Any) -> Any:
        return client.responses.create(**{"model": "lm", "input": TALK, "max_output_tokens": 24, **fields})

    flat = {"type": "function", **TOOL["function"], "strict": True}

    def called(**fields: Any) -> Any:
        return respond(max_output_tokens=60, tools=[flat], tool_choice="required", **fields)

    def arguments_are_right(text: str) -> bool:
        return set(json.loads(text)) == {"city"}

    def events(**fields: Any) -> list[Any]:
        return list(respond(**fields, stream=True))

    def accumulated() -> bool:
        with client.responses.stream(model="lm", input=TALK, max_output_tokens=60, tools=[flat]) as stream:
            parts = [event.delta for event in stream if event.type == "response.output_text.delta"]
        return bool(parts)

    def second_turn() -> bool:
        first = called()
        results = [
            {"type": "function_call_output", "call_id": item.call_id, "output": "sunny"}
            for item in first.output
            if item.type == "function_call"
        ]
        return bool(results) and bool(respond(input=[*TALK, *first.output, *results], tools=[flat]).output_text)

    yield "openai response", lambda: respond().output_text == expected.answer
    yield "openai response, text", lambda: respond(input=TALK[0]["content"]).output_text == expected.answer
    yield (
        "openai response, fields",
        lambda: respond(store=False, metadata={"a": "b"}, truncation="auto").output_text == expected.answer,
    )
    yield "openai response, instructions", lambda: bool(respond(instructions="Be brief.").output_text)
    yield "openai response, usage", lambda: respond().usage.output_tokens <= 24 and respond().status is not None
    yield (
        "openai response, streamed",
        lambda: (
            "".join(event.delta for event in events() if event.type == "response.output_text.delta") == expected.answer
        ),
    )
    yield "openai response, a stream's end", lambda: events()[-1].response.output_text == expected.answer
    yield "openai response, accumulated", accumulated
    yield "openai response, tool", lambda: arguments_are_right(called().output[-1].arguments)
    yield (
        "openai response, tool streamed",
        lambda: arguments_are_right(
            "".join(event.delta for event in called(stream=True) if event.type.endswith("arguments.delta"))
        ),
    )
    yield "openai response, second turn", second_turn
    form = {"format": {"type": "json_schema", "name": "city", "schema": SCHEMA, "strict": True}}
    yield (
        "openai response, json_schema",
        lambda: arguments_are_right(respond(text=form, max_output_tokens=60).output_text),
    )


def _mcp(address: str, expected: Expected) -> Calls:
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    command = ["-m", "fastattn", "serve", "-m", "en-pt", "-m", "minilm", "--mcp"]
    process = StdioServerParameters(command=sys.executable, args=command, env={**os.environ})
    pair = {"source": "en", "target": "pt"}

    async def answers(client: Any) -> dict[str, Any]:
        async def called(tool: str, **arguments: Any) -> Any:
            result = await client.call_tool(tool, arguments)
            return None if result.is_error else json.loads(result.content[0].text)

        page = {"content": PAGE, "form": "html"}
        return {
            "tools": [tool.name for tool in (await client.list_tools()).tools],
            "texts": await called("translate", texts=TEXTS, **pair),
            "page": await called("translate_document", **page, **pair),
            "vectors": await called("embed", texts=TEXTS),
            "found": (await called("search", query="a kitten", texts=["It rains.", "A cat sleeps."]))[0]["index"],
            "wrong": await called("translate", texts=TEXTS, target="xx"),
        }

    async def session(of: Any, mode: str) -> dict[str, Any]:
        async with Client(of, mode=mode) as client:
            return await answers(client)

    for mode in ("auto", "legacy"):
        for way in ("HTTP", "stdio"):
            got: dict[str, Any] = {}

            def begun(way: str = way, mode: str = mode, got: dict[str, Any] = got) -> bool:
                got.update(asyncio.run(session(f"{address}/mcp" if way == "HTTP" else stdio_client(process), mode)))
                return got["tools"] == ["translate", "translate_document", "embed", "search"]

            yield f"mcp {way}, {mode}: tools", begun
            yield f"mcp {way}, {mode}: translate", lambda got=got: got["texts"] == expected.translated
            yield f"mcp {way}, {mode}: translate_document", lambda got=got: got["page"] == PAGE_PT
            yield f"mcp {way}, {mode}: embed", lambda got=got: expected.are_vectors(got["vectors"])
            yield f"mcp {way}, {mode}: search", lambda got=got: got["found"] == 1
            yield f"mcp {way}, {mode}: wrong language", lambda got=got: got["wrong"] is None


def _deepl(address: str, expected: Expected) -> Calls:
    import deepl

    client = deepl.Translator("none", server_url=address)
    pair = {"source_lang": "EN", "target_lang": "PT-PT"}

    def text(source: str, **options: Any) -> str:
        return client.translate_text(source, **pair, **options).text

    def with_glossary() -> bool:
        glossary = client.create_glossary("terms", "EN", "PT", {"house": "moradia"})
        answers = text("The house is old.", glossary=glossary), client.get_glossary_entries(glossary)
        listed = [entry.glossary_id for entry in client.list_glossaries()]
        client.delete_glossary(glossary)
        return "moradia" in answers[0] and answers[1] == {"house": "moradia"} and glossary.glossary_id in listed

    def document() -> bool:
        output = io.BytesIO()
        client.translate_document(PAGE, output, filename="page.html", **pair)
        return output.getvalue().decode() == PAGE_PT

    yield "deepl texts", lambda: [item.text for item in client.translate_text(TEXTS, **pair)] == expected.translated
    yield "deepl auto", lambda: client.translate_text(TEXTS[1], target_lang="PT-PT").detected_source_lang == "EN"
    yield "deepl html", lambda: text(PAGE, tag_handling="html") == PAGE_PT
    yield "deepl xml", lambda: text(f"<x>{PAGE}</x>", tag_handling="xml") == f"<x>{PAGE_PT}</x>"
    yield "deepl ignore_tags", lambda: "<b>morning</b>" in text(PAGE, tag_handling="xml", ignore_tags=["b"])
    yield (
        "deepl splitting_tags",
        lambda: bool(
            text(PAGE, tag_handling="xml", outline_detection=False, splitting_tags=["p"], non_splitting_tags=["b"])
        ),
    )
    for split in ("0", "1", "nonewlines"):
        yield f"deepl split_sentences {split}", lambda split=split: bool(text(TEXTS[1], split_sentences=split))
    for formality in ("default", "more", "less", "prefer_more", "prefer_less"):
        yield (
            f"deepl formality {formality}",
            lambda formality=formality: (text(TEXTS[0], formality=formality) == expected.translated[0]),
        )
    yield (
        "deepl preserve_formatting, context",
        lambda: (text(TEXTS[0], preserve_formatting=True, context="A letter.") == expected.translated[0]),
    )
    yield "deepl glossary", with_glossary
    yield "deepl document", document
    yield "deepl languages", lambda: [language.code for language in client.get_target_languages()] == ["PT"]
    yield "deepl usage", lambda: client.get_usage().character.count > 0


def _libretranslate(address: str, expected: Expected) -> Calls:
    import httpx
    from libretranslatepy import LibreTranslateAPI

    libre = LibreTranslateAPI(f"{address}/")
    yield "libretranslatepy", lambda: [libre.translate(text, "en", "pt") for text in TEXTS] == expected.translated
    yield "libretranslatepy detect", lambda: libre.detect(TEXTS[1])[0]["language"] == "en"
    yield "libretranslatepy languages", lambda: libre.languages()[0]["targets"] == ["pt"]
    fields = {"source": "en", "target": "pt", "api_key": "none"}  # the package has no files: as a page sends them

    def file(name: str, content: str) -> str:
        answer = httpx.post(f"{address}/translate_file", data=fields, files={"file": (name, content)}, timeout=60)
        return httpx.get(answer.json()["translatedFileUrl"]).text

    yield "LibreTranslate file, html", lambda: file("a.html", PAGE) == PAGE_PT
    yield "LibreTranslate file, txt", lambda: file("a.txt", TEXTS[0]) == expected.translated[0]
    yield "LibreTranslate suggest", lambda: httpx.post(f"{address}/suggest", json={"q": "a"}).status_code == 403


def _ollama(address: str, expected: Expected) -> Calls:
    import ollama

    client = ollama.Client(host=address)
    options = {"num_predict": 24}

    def chat(**fields: Any) -> Any:
        return client.chat("lm", TALK, options=options, **fields)

    yield "ollama chat", lambda: chat().message.content == expected.answer
    yield (
        "ollama chat, streamed",
        lambda: ("".join(part.message.content for part in chat(stream=True)) == expected.answer),
    )
    yield "ollama format", lambda: set(json.loads(chat(format=SCHEMA).message.content)) == {"city"}
    yield "ollama tools", lambda: chat(tools=[TOOL]).message.role == "assistant"
    yield (
        "ollama generate",
        lambda: client.generate("lm", TALK[0]["content"], options=options).response == expected.answer,
    )
    yield (
        "ollama generate, raw",
        lambda: (
            client.generate("lm", TEXTS[0], raw=True, options={"num_predict": 12}).response == expected.continuation
        ),
    )
    yield "ollama generate, streamed", lambda: list(client.generate("lm", "a", stream=True, options=options))[-1].done
    yield "ollama embed", lambda: expected.are_vectors(client.embed("minilm", TEXTS).embeddings)
    yield "ollama embeddings", lambda: len(client.embeddings("minilm", "a").embedding) == 384
    yield "ollama list", lambda: "lm:latest" in [model.model for model in client.list().models]
    yield "ollama show", lambda: client.show("lm").capabilities[0] == "completion"
    yield "ollama ps", lambda: bool(client.ps().models)


def _hub(address: str, expected: Expected) -> Calls:
    from huggingface_hub import InferenceClient

    client = InferenceClient(base_url=address)
    yield "huggingface_hub features", lambda: expected.are_vectors(client.feature_extraction(TEXTS))
    yield "huggingface_hub similarity", lambda: len(client.sentence_similarity("a", other_sentences=TEXTS)) == 2
    yield "huggingface_hub text", lambda: client.text_generation(TEXTS[0], max_new_tokens=12) == expected.continuation
    yield (
        "huggingface_hub chat",
        lambda: (client.chat_completion(TALK, model="lm", max_tokens=24).choices[0].message.content == expected.answer),
    )


def _frameworks(address: str, expected: Expected) -> Calls:
    import cohere
    import litellm
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage as HaystackMessage
    from haystack.utils import Secret
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
    from llama_index.core.llms import ChatMessage
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding
    from llama_index.llms.openai_like import OpenAILike

    base, question = f"{address}/v1", TALK[0]["content"]
    settings = {"base_url": base, "api_key": "none"}
    # LangChain counts tokens by OpenAI's vocabulary unless it is told not to.
    vectors = OpenAIEmbeddings(model="minilm", check_embedding_ctx_length=False, **settings)
    yield "langchain vectors", lambda: expected.are_vectors(vectors.embed_documents(TEXTS))
    chat = ChatOpenAI(model="lm", max_tokens=24, **settings)
    yield "langchain chat", lambda: chat.invoke(question).content == expected.answer
    yield "langchain stream", lambda: "".join(part.content for part in chat.stream(question)) == expected.answer
    tools = chat.bind(max_tokens=60).bind_tools([TOOL], tool_choice="weather")
    yield "langchain tools", lambda: tools.invoke(question).tool_calls[0]["name"] == "weather"
    llama = {"api_base": base, "api_key": "none"}
    similar = OpenAILikeEmbedding(model_name="minilm", **llama)
    yield "LlamaIndex vectors", lambda: expected.are_vectors(similar.get_text_embedding_batch(TEXTS))
    talker = OpenAILike(model="lm", is_chat_model=True, max_tokens=24, temperature=0.0, **llama)
    yield "LlamaIndex chat", lambda: talker.chat([ChatMessage(**TALK[0])]).message.content == expected.answer
    lite = {"api_base": base, "api_key": "none"}
    yield (
        "litellm chat",
        lambda: (
            litellm.completion("openai/lm", messages=TALK, max_tokens=24, metadata={"a": "b"}, **lite)
            .choices[0]
            .message.content
            == expected.answer
        ),
    )
    yield (
        "litellm vectors",
        lambda: expected.are_vectors(
            [item["embedding"] for item in litellm.embedding("openai/minilm", input=TEXTS, **lite).data]
        ),
    )
    secret = Secret.from_token("none")
    haystack = OpenAIChatGenerator(secret, "lm", api_base_url=base, generation_kwargs={"max_tokens": 24})
    yield (
        "haystack chat",
        lambda: haystack.run([HaystackMessage.from_user(question)])["replies"][0].text == expected.answer,
    )

    def no_reranker() -> bool:
        try:
            cohere.ClientV2("none", base_url=address).rerank(model="lm", query="a", documents=TEXTS)
        except cohere.NotFoundError:
            return True
        return False

    yield "cohere without a reranker", no_reranker
