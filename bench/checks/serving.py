"""The server: under load beside others, by its own description, asked by other people's clients."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.checks import Absent, Data, Findings, check, need
from bench.decoder_shapes import SMOLLM2
from bench.load import SERVE, Server, load, running
from bench.machine import processors
from fastattn import Encoder, Generator, Translator
from fastattn.weights import download

CLIENTS = (1, 8, 64)
SECONDS = float(os.environ.get("FASTATTN_LOAD_SECONDS", "180"))
LOAD_TEXTS, TOGETHER = 240, 4  # every fourth request is a paragraph of so many sentences
SCALE = 5.0  # of the rate of 64 clients and that of one
Ask = tuple[str, Callable[[str], Any]]  # a path, and the body for a text


def mixed(sentences: list[str]) -> list[str]:
    """Short sentences, and paragraphs of several, in an order that has nothing to do with their lengths."""
    texts = sorted(sentences, key=len)[: 3 * LOAD_TEXTS // 4]
    texts += [" ".join(sentences[at : at + TOGETHER]) for at in range(0, LOAD_TEXTS * TOGETHER // 4, TOGETHER)]
    return sorted(texts, key=lambda text: hashlib.sha256(text.encode()).digest())


def _under_load(
    findings: Findings, texts: list[str], own: list[str], ask: Ask, peer: str, command: list[str], ask_peer: Ask
) -> None:
    if shutil.which("wrk") is None:
        raise Absent("apt install wrk")
    with running(own) as server, running(command) as other:
        asked = {"fastattn": (server, requests(server, *ask, texts)), peer: (other, requests(other, *ask_peer, texts))}
        for name, (one, _) in asked.items():
            findings.say(f"{name} {one.memory() / 1e6:.0f} MB idle")
        rates = []
        for clients in CLIENTS:
            ours, theirs = (load(*each, clients, SECONDS) for each in asked.values())
            remark = f"{ours}; {peer} {theirs}, {theirs.failed} errors"
            findings.at_least(f"{clients} clients:", ours.rate / theirs.rate, f"x {peer}", 1.0, remark)
            findings.at_most("p99", ours.p99_ms / theirs.p99_ms, f"of {peer}'s", 1.0)
            findings.at_most("errors", ours.failed, "", 0)
            findings.at_most("answers that differ", ours.different, f"of {ours.compared}", 0)
            rates.append(ours.rate)
    findings.say(f"{CLIENTS[-1]} clients: {rates[-1] / rates[0]:.2f} x one")
    with running([*own, "--processes", str(processors())]) as server:
        asked_of_several = requests(server, *ask, texts)
        one, *_, most = (load(server, asked_of_several, clients, SECONDS) for clients in (CLIENTS[0], CLIENTS[-1]))
        memory = f"{one}; {most}; {server.memory() / 1e6:.0f} MB"
    findings.at_least(f"{processors()} processes, {CLIENTS[-1]} clients:", most.rate / one.rate, "x one", SCALE, memory)


def _beside_plain_server(findings: Findings, data: Data, model: str, ask: Ask, peer: str) -> None:
    """The load of English texts, on ``bench.plain_server`` with the peer too."""
    plain = [sys.executable, "-m", "bench.plain_server", peer, str(download.resolve(model)), "--port", "{port}"]
    ask_peer = ("/", lambda text: {"texts": [text]})
    _under_load(findings, mixed(data.flores("en")), [*SERVE, "-m", model], ask, peer, plain, ask_peer)


def requests(server: Server, path: str, body: Callable[[str], Any], texts: list[str]) -> list[tuple[str, Any, bytes]]:
    return [(path, body(text), server.ask(path, body(text))) for text in texts]


@check(
    "serve-load-firefox",
    "en-pt, fastattn serve beside fxtranslate behind FastAPI, 1, 8 and 64 clients of wrk, sentences and paragraphs: "
    f"ahead at every point, 64 clients at least {SCALE:g} x one, no answer differs from the one given alone",
)
def firefox(findings: Findings, data: Data) -> None:
    need("fxtranslate", "fastapi")
    ask = ("/translate", lambda text: {"q": text, "source": "en", "target": "pt"})
    _beside_plain_server(findings, data, "en-pt", ask, "fxtranslate")


@check(
    "serve-load-libretranslate",
    "zh-en, fastattn serve beside LibreTranslate with the same checkpoint, the program that FASTATTN_LIBRETRANSLATE "
    "names: the same",
)
def libretranslate(findings: Findings, data: Data) -> None:
    program = os.environ.get("FASTATTN_LIBRETRANSLATE") or shutil.which("libretranslate")
    if not program:
        raise Absent("libretranslate, the package of that name")
    ask = ("/translate", lambda text: {"q": text, "source": "zh", "target": "en"})
    command = [program, "--host", "127.0.0.1", "--port", "{port}", "--disable-web-ui", "--threads", "8"]
    _under_load(findings, mixed(data.flores("zh")), [*SERVE, "-m", "zh-en"], ask, "LibreTranslate", command, ask)


@check("serve-load-vectors", "minilm, fastattn serve beside sentence-transformers behind FastAPI: the same")
def vectors(findings: Findings, data: Data) -> None:
    need("sentence_transformers", "fastapi")
    ask = ("/embed", lambda text: {"inputs": [text]})
    _beside_plain_server(findings, data, "minilm", ask, "sentence-transformers")


EXAMPLES = 100  # of each operation
# A code that is no language fits the description, and is refused in LibreTranslate's way, by 400.
LEFT_OUT = "positive_data_acceptance"


@check(
    "serve-schema",
    f"schemathesis over the OpenAPI description of a translator, an encoder and a language model, {EXAMPLES} examples "
    f"of each operation, all of its checks but {LEFT_OUT}: it finds nothing",
)
def schema(findings: Findings, data: Data) -> None:
    need("schemathesis", "fastapi")
    program = Path(sys.executable).with_name("schemathesis")
    with running([*SERVE, "-m", "en-pt", "-m", "minilm", "-m", f"lm={SMOLLM2.path}", "--timeout", "20"]) as server:
        ended = subprocess.run(
            [str(program), "run", f"{server.address}/openapi.json", "--max-examples", str(EXAMPLES), "--seed", "1",
             "-c", "all", "--exclude-checks", LEFT_OUT],
            capture_output=True,
            text=True,
        )  # fmt: skip
    found = re.findall(r"(\d+) (failures?|errors?)\b", ended.stdout.splitlines()[-1])
    findings.at_most("failures and errors", sum(int(number) for number, _ in found), "", 0)
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
    wanted = Translator("en-pt").translate(TEXTS), Encoder("minilm").encode(TEXTS)
    answer = Generator(SMOLLM2.path).generate(messages=ASKED, max_new_tokens=24)
    with running([*SERVE, "-m", "en-pt", "-m", "minilm", "-m", f"lm={SMOLLM2.path}"]) as server:
        for name, alike in _answers(server.address, *wanted, answer):
            findings.at_least(f"{name}:", int(alike), "", 1, "")


def _answers(address: str, translated: list[str], vectors_BD: np.ndarray, answer: str) -> Iterator[tuple[str, bool]]:
    """(what was asked, whether it is what the API says)."""
    import deepl
    import openai
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
    from libretranslatepy import LibreTranslateAPI

    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none")
    for encoding in ({"encoding_format": "float"}, {}):  # without it the client asks for base64, and unpacks that
        found = client.embeddings.create(model="minilm", input=TEXTS, **encoding)
        found_BD = np.array([one.embedding for one in found.data], np.float32)
        yield f"openai {'float' if encoding else 'base64'}", np.array_equal(found_BD, vectors_BD)
    asked: dict[str, Any] = {"model": "lm", "messages": ASKED, "max_tokens": 24}
    yield "openai chat", client.chat.completions.create(**asked).choices[0].message.content == answer
    pieces = [one.choices[0].delta.content or "" for one in client.chat.completions.create(**asked, stream=True)]
    yield "openai stream", "".join(pieces) == answer
    found = deepl.Translator("none", server_url=address).translate_text(TEXTS, source_lang="EN", target_lang="PT-PT")
    yield "deepl", [one.text for one in found] == translated
    libre = LibreTranslateAPI(f"{address}/")
    yield "libretranslatepy", [libre.translate(text, "en", "pt") for text in TEXTS] == translated
    known = {"model": "minilm", "base_url": f"{address}/v1", "api_key": "none"}
    # LangChain counts tokens by OpenAI's vocabulary unless it is told not to.
    found = OpenAIEmbeddings(check_embedding_ctx_length=False, **known).embed_documents(TEXTS)
    yield "langchain vectors", np.array_equal(np.array(found, np.float32), vectors_BD)
    chat = ChatOpenAI(model="lm", base_url=f"{address}/v1", api_key="none", max_tokens=24)
    yield "langchain chat", chat.invoke(ASKED[0]["content"]).content == answer
    from llama_index.core.llms import ChatMessage
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding
    from llama_index.llms.openai_like import OpenAILike

    known = {"api_base": f"{address}/v1", "api_key": "none"}
    found = OpenAILikeEmbedding(model_name="minilm", **known).get_text_embedding_batch(TEXTS)
    yield "LlamaIndex vectors", np.array_equal(np.array(found, np.float32), vectors_BD)
    talker = OpenAILike(model="lm", is_chat_model=True, max_tokens=24, temperature=0.0, **known)
    yield "LlamaIndex chat", talker.chat([ChatMessage(**ASKED[0])]).message.content == answer
