"""The server against its own description, and with other people's clients."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.checks import Data, Findings, check, need
from bench.server import SERVE, running
from fastattn import Encoder, Generator, Translator

EXAMPLES = 100  # of each operation
# A code that is no language fits the description; as LibreTranslate does, the server refuses it with 400.
LEFT_OUT = "positive_data_acceptance"


@check(
    "serve-schema",
    f"schemathesis over the OpenAPI description of a translator, an encoder and a language model, {EXAMPLES} examples "
    f"of each operation, all of its checks but {LEFT_OUT}: it finds nothing",
)
def schema(findings: Findings, data: Data) -> None:
    need("schemathesis", "fastapi")
    program = Path(sys.executable).with_name("schemathesis")
    with running([*SERVE, "-m", "en-pt", "-m", "minilm", "-m", "lm=smollm2", "--timeout", "20"]) as server:
        ended = subprocess.run(
            [str(program), "run", f"{server.address}/openapi.json", "--max-examples", str(EXAMPLES), "--seed", "1",
             "-c", "all", "--exclude-checks", LEFT_OUT],
            capture_output=True,
            text=True,
        )  # fmt: skip
    counts = re.findall(r"(\d+) (failures?|errors?)\b", ended.stdout.splitlines()[-1])
    findings.at_most("failures and errors", sum(int(number) for number, _ in counts), "", 0)
    generated = re.search(r"(\d+) generated", ended.stdout)
    findings.at_least("requests", int(generated[1]) if generated else 0, "", 1000)
    if ended.returncode:
        findings.say(" / ".join(re.findall(r"- (ST\d+ .*)", ended.stdout)[:6]))


TEXTS = ["Good morning, my friend.", "Where is the station? It is late."]
ASKED = [{"role": "user", "content": "What is the capital of France?"}]


@check(
    "serve-clients",
    "the packages openai (vectors in both encodings, a conversation whole and streamed), deepl, libretranslatepy, "
    "langchain-openai and LlamaIndex' for servers like OpenAI's, unmodified: their answers are the API's",
)
def clients(findings: Findings, data: Data) -> None:
    need("openai", "deepl", "libretranslatepy", "langchain_openai", "llama_index", "fastapi", "py3langid")
    expected = Translator("en-pt").translate(TEXTS), Encoder("minilm").encode(TEXTS)
    answer = Generator("smollm2").generate(messages=ASKED, max_new_tokens=24)
    with running([*SERVE, "-m", "en-pt", "-m", "minilm", "-m", "lm=smollm2"]) as server:
        for name, alike in _answers(server.address, *expected, answer):
            findings.at_least(f"{name}:", int(alike), "", 1, "")


def _answers(address: str, translated: list[str], vectors_BD: np.ndarray, answer: str) -> Iterator[tuple[str, bool]]:
    """(the request's name, whether the answer is what the API says)."""
    import deepl
    import openai
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
    from libretranslatepy import LibreTranslateAPI

    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none")
    for encoding in ({"encoding_format": "float"}, {}):  # by default the client requests base64 and unpacks it
        result = client.embeddings.create(model="minilm", input=TEXTS, **encoding)
        result_BD = np.array([item.embedding for item in result.data], np.float32)
        yield f"openai {'float' if encoding else 'base64'}", np.array_equal(result_BD, vectors_BD)
    options: dict[str, Any] = {"model": "lm", "messages": ASKED, "max_tokens": 24}
    yield "openai chat", client.chat.completions.create(**options).choices[0].message.content == answer
    pieces = [item.choices[0].delta.content or "" for item in client.chat.completions.create(**options, stream=True)]
    yield "openai stream", "".join(pieces) == answer
    result = deepl.Translator("none", server_url=address).translate_text(TEXTS, source_lang="EN", target_lang="PT-PT")
    yield "deepl", [item.text for item in result] == translated
    libre = LibreTranslateAPI(f"{address}/")
    yield "libretranslatepy", [libre.translate(text, "en", "pt") for text in TEXTS] == translated
    settings = {"model": "minilm", "base_url": f"{address}/v1", "api_key": "none"}
    # LangChain counts tokens by OpenAI's vocabulary unless it is told not to.
    result = OpenAIEmbeddings(check_embedding_ctx_length=False, **settings).embed_documents(TEXTS)
    yield "langchain vectors", np.array_equal(np.array(result, np.float32), vectors_BD)
    chat = ChatOpenAI(model="lm", base_url=f"{address}/v1", api_key="none", max_tokens=24)
    yield "langchain chat", chat.invoke(ASKED[0]["content"]).content == answer
    from llama_index.core.llms import ChatMessage
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding
    from llama_index.llms.openai_like import OpenAILike

    settings = {"api_base": f"{address}/v1", "api_key": "none"}
    result = OpenAILikeEmbedding(model_name="minilm", **settings).get_text_embedding_batch(TEXTS)
    yield "LlamaIndex vectors", np.array_equal(np.array(result, np.float32), vectors_BD)
    talker = OpenAILike(model="lm", is_chat_model=True, max_tokens=24, temperature=0.0, **settings)
    yield "LlamaIndex chat", talker.chat([ChatMessage(**ASKED[0])]).message.content == answer
