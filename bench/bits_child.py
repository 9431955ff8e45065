"""bench.bits's process for a commit: ``bits_child.py TREE ONLY`` prints a digest of each result, models from stdin.

It imports fastattn from TREE, and nothing else from this repository: only public names that both commits have.
"""

import hashlib
import io
import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from typing import Any

sys.path[0] = sys.argv[1]

import numpy as np  # noqa: E402  the path comes first

import fastattn  # noqa: E402
from fastattn import mechanisms  # noqa: E402

Result = tuple[str, Callable[[], Any]]
SHAPES = {  # sentences, queries, keys, query heads, key heads, width
    "sentences": (5, 24, 24, 8, 8, 64),
    "long": (1, 700, 700, 4, 4, 64),
    "step": (9, 1, 300, 8, 2, 64),
    "odd": (2, 37, 53, 6, 3, 33),
    "wide": (2, 65, 129, 2, 2, 128),
}
ENGLISH = [
    "The house near the river was sold in May.",
    "Please don't open the window: it is 5 degrees outside!",
    "She said that, after three weeks of heavy rain, nobody had expected the bridge to be closed for repairs again.",
    "Yes.",
    "Scientists from four universities began to collect samples of water, soil and air along the whole border.",
]
CHINESE = [
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002",
    "\u6211\u4eec\u660e\u5929\u53bb\u5317\u4eac\u3002",
    "\u8fd9\u672c\u4e66\u5f88\u6709\u610f\u601d\u3002",
]
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"beam_size": 1},
    "beam 4": {"beam_size": 4},
    "n-best": {"beam_size": 4, "num_hypotheses": 4},
    "penalties": {"beam_size": 3, "length_penalty": 0.6, "coverage_penalty": 0.2, "repetition_penalty": 1.2},
    "n-grams": {"beam_size": 2, "no_repeat_ngram_size": 2},
    "samples": {"sampling_topk": 0, "sampling_topp": 0.9, "seed": 7, "num_hypotheses": 3, "beam_size": 1},
    "min_p": {"sampling_topk": 0, "sampling_minp": 0.1, "sampling_temperature": 1.5, "seed": 1, "beam_size": 1},
    "attention": {"beam_size": 2, "return_attention": True},
    "short": {"beam_size": 2, "max_decoding_length": 5},
    "prefix": {"beam_size": 2, "target_prefix": "A"},
    "bias": {"beam_size": 2, "target_prefix": "A", "prefix_bias_beta": 0.3},
    "alternatives": {"beam_size": 2, "num_hypotheses": 3, "return_alternatives": True},
}
DOCUMENTS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "txt": ("\n".join(ENGLISH).encode(), {}),
    "html": (
        b"<html lang=en><p>The <b>old</b> house &amp; the <a href='x?a=b'>new road</a>.<p title='A cat'>2 dogs",
        {},
    ),
    "md": (b"# The house\n\nSee `code` and **the road** [here](x.md).\n\n- One\n- Two trees\n", {}),
    "srt": (b"1\n00:00:01,000 --> 00:00:02,000\nThe house\nis old.\n\n2\n00:00:03,000 --> 00:00:04,000\n- Yes.\n", {}),
    "po": (b'msgid "The house has %d doors."\nmsgstr ""\n\nmsgid "Open"\nmsgstr "x"\n', {}),
    "xliff": (
        b"<xliff version='1.2'><file><body><trans-unit id='1'><source>The <g id='2'>red</g> house</source></trans-unit>"
        b"</body></file></xliff>",
        {},
    ),
    "csv": (b'id,text\n1,The house\n2,"A road, a river"\n', {"fields": ["text"]}),
    "tsv": (b"id\ttext\n1\tThe house\n", {"fields": ["text"]}),
    "jsonl": (b'{"id": 1.10, "text": "The house"}\n', {"fields": ["text"]}),
}


def feed(hash_: Any, value: Any) -> None:
    """Add a result's contents to a hash, whatever its classes are called."""
    if isinstance(value, np.ndarray):
        hash_.update(f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, bytes):
        hash_.update(value)
    elif isinstance(value, dict):
        feed(hash_, list(value.items()))
    elif isinstance(value, (list, tuple)):
        hash_.update(f"[{len(value)}".encode())
        for item in value:
            feed(hash_, item)
    elif hasattr(value, "__dict__"):
        feed(hash_, list(vars(value).items()))
    else:
        hash_.update(repr(value).encode() + b";")


def arrays(B: int, T: int, S: int, H: int, G: int, K: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(T * S)
    query, key, value = (rng.standard_normal(shape, np.float32) for shape in ((B, T, H, K), (B, S, G, K), (B, S, G, K)))
    return query, key, value


def relative(score: Any, b: Any, h: Any, t: Any, s: Any) -> Any:
    return score - abs(t - s) * 0.1


def near(b: Any, h: Any, t: Any, s: Any) -> Any:
    return (t - s < 9) & (s - t < 5)


def attention_results() -> Iterator[Result]:
    for name, shape in SHAPES.items():
        inputs = query, key, value = arrays(*shape)
        (B, T, H), S, rng = query.shape[:3], key.shape[1], np.random.default_rng(1)
        options: dict[str, dict[str, Any]] = {
            "plain": {},
            "causal": {"causal": True, "offset": "end"},
            "window": {"window": (7, 3)},
            "scale and cap": {"scale": 0.3, "softcap": 5.0},
            "mask": {"mask": rng.random((B, 1, T, S)) < 0.7},
            "bias": {"bias": rng.standard_normal((1, H, T, S), np.float32)},
            "lengths": {"lengths": rng.integers(1, S + 1, B)},
            "sinks": {"sinks": rng.standard_normal(H).astype(np.float32)},
            "weights": {"return_weights": True},
            "sums": {"return_logsumexp": True},
            "a score function": {"score_mod": relative},
            "a mask function": {"mask_mod": near},
        }
        for title, arguments in options.items():
            yield f"attention {name}, {title}", partial(fastattn.attention, *inputs, **arguments)
        half = [array.astype(np.float16) for array in inputs]
        yield f"attention {name}, float16", partial(fastattn.attention, *half)
        heads_first = [np.ascontiguousarray(array.transpose(0, 2, 1, 3)) for array in inputs]
        yield f"attention {name}, heads first", partial(fastattn.attention, *heads_first, layout="BHTK")
    query, key, value = (array[0] for array in arrays(1, 60, 60, 4, 2, 32))
    starts = np.array([0, 7, 7, 40, 60])
    for causal in (False, True):
        ragged = partial(fastattn.attention_ragged, query, key, value, starts, starts, causal=causal)
        yield f"attention of ragged sentences{', causal' * causal}", ragged
    for dtype, window in product(("float32", "bfloat16", "int8"), (None, (9, 0))):
        yield f"cache of {dtype}, window {window}", partial(steps, dtype, window)
    width = 24
    rng = np.random.default_rng(2)
    weights = [rng.standard_normal((width, width), np.float32) / 5 for _ in range(4)]
    x = rng.standard_normal((2, 9, width), np.float32)
    for precision in ("float32", "bfloat16", "int8"):
        projections = fastattn.ProjectionWeights(*weights)
        yield (
            f"multi-head attention in {precision}",
            partial(fastattn.multi_head_attention, x, weights=projections, heads=3, precision=precision),
        )


def steps(dtype: str, window: tuple[int, int] | None) -> list[np.ndarray]:
    """Ten steps of attention over a cache; its sentences change places after the fifth."""
    cache_, rng, results = fastattn.KVCache(3, 2, 32, dtype=dtype), np.random.default_rng(3), []
    for step in range(10):
        T = 5 if step == 0 else 1
        query, key, value = (rng.standard_normal((3, T, heads, 32), np.float32) for heads in (4, 2, 2))
        cache_.append(key, value)
        results.append(cache_.attend(query, window=window))
        if step == 5:
            cache_.reorder([2, 2, 0])
    return results


def mechanism_results() -> Iterator[Result]:
    rng = np.random.default_rng(4)
    T, S, H, K = 19, 31, 3, 16
    query, key, value = (rng.standard_normal((2, n, H, K), np.float32) for n in (T, S, S))
    matrix, places = (rng.standard_normal((H, n, K), np.float32) / 4 for n in (K, S))
    vector = rng.standard_normal((H, K), np.float32)
    edges = rng.integers(0, T, (60, 2))
    neighbours = mechanisms.Neighbours.from_edges(np.minimum(edges, T - 1), T)
    forms: dict[str, dict[str, Any]] = {
        "dot": {"score": mechanisms.Dot()},
        "scaled dot": {"score": mechanisms.ScaledDot(softcap=4.0)},
        "content": {"score": mechanisms.Content(9.0)},
        "general": {"score": mechanisms.General(matrix)},
        "location": {"score": mechanisms.Location(places)},
        "additive": {"score": mechanisms.Additive(matrix, matrix[:, ::-1].copy(), vector)},
        "graph's score": {"score": mechanisms.Graph(np.concatenate([vector, vector], axis=1))},
        "ALiBi": {"score": mechanisms.ScaledDot(bias=mechanisms.alibi_bias(H, T, S))},
        "padded": {"seen": mechanisms.Padded([9, 30])},
        "causal": {"seen": mechanisms.Causal(12)},
        "restricted": {"seen": mechanisms.Restricted(4)},
        "local-m": {"seen": mechanisms.LocalMonotonic(3)},
        "local-p": {"seen": mechanisms.LocalPredictive(matrix, vector, 4)},
        "mask": {"seen": mechanisms.Mask(rng.random((T, S)) < 0.5)},
        "hard": {"normalizer": mechanisms.Hard()},
        "hard, drawn": {"normalizer": mechanisms.Hard(seed=3)},
        "pointer": {"normalizer": mechanisms.Pointer()},
        "saliency": {"normalizer": mechanisms.Saliency()},
    }
    for name, options in forms.items():
        yield f"mechanism {name}", partial(mechanisms.attend, query, key, value, **options)
    features = rng.standard_normal((T, K), np.float32)
    layer = rng.standard_normal((2, 5, K), np.float32), rng.standard_normal((2, 10), np.float32)
    for average in (False, True):
        graph = partial(mechanisms.graph_attention, features, *layer, neighbours, average=average)
        yield f"mechanism graph attention, average {average}", graph
    for interleaved in (False, True):
        yield f"mechanism rotary, {interleaved}", partial(mechanisms.rotary, query, interleaved=interleaved)
        yield f"mechanism sinusoids, {interleaved}", partial(mechanisms.sinusoids, 9, 16, interleaved=interleaved)
    table = rng.standard_normal((32, H), np.float32)
    yield "mechanism T5's buckets", partial(mechanisms.t5_bias, table, T, S)
    numbers = {name: rng.uniform(0.5, 2, (2, H)).astype(np.float32) for name in ("strength", "exponent")}
    numbers |= {"gate": rng.random((2, H), np.float32), "shifts": rng.dirichlet(np.ones(3), (2, H)).astype(np.float32)}
    memory, previous = rng.standard_normal((2, S, K), np.float32), rng.dirichlet(np.ones(S), (2, H)).astype(np.float32)
    yield "mechanism addressing", partial(mechanisms.address, query[:, 0], memory, previous, **numbers)


@cache
def translator(name: str, precision: str) -> Any:
    return fastattn.Translator(name, precision=precision)


@cache
def encoder(precision: str) -> Any:
    return fastattn.Encoder("minilm", precision=precision)


def model_results() -> Iterator[Result]:
    for name, texts in (("en-pt", ENGLISH), ("zh-en", CHINESE)):
        for precision, (title, options) in product(("float32", "bfloat16", "int8", "int4"), SEARCHES.items()):
            model = partial(translator, name, precision)
            call = partial(lambda m, t, o: m().translate(t, details=True, **o), model, texts, options)
            yield f"{name} in {precision}, {title}", call
    for precision in ("float32", "bfloat16", "int8", "int4"):
        rows = partial(encoder, precision)
        for pooling in ("mean", "cls", "max"):
            call = partial(lambda e, p: e().encode(ENGLISH, pooling=p), rows, pooling)
            yield f"minilm in {precision}, {pooling}", call
    for output_dtype in ("binary", "ubinary"):
        call = partial(lambda d: encoder("float32").encode(ENGLISH, output_dtype=d), output_dtype)
        yield f"minilm, {output_dtype}", call
    yield "minilm, search", lambda: search(encoder("float32").encode(ENGLISH * 9))
    yield "splade-tiny", lambda: fastattn.SparseEncoder("splade-tiny").encode(ENGLISH)
    chat = cache(lambda: fastattn.Generator("smollm2"))
    answers: dict[str, dict[str, Any]] = {
        "greedy": {},
        "samples": {"sampling_temperature": 0.8, "sampling_topp": 0.9, "seed": 3},
        "stop": {"stop": "the"},
        "speculation": {"speculate": "prompt"},
        "log-probabilities": {"return_log_probs": True},
    }
    for title, options in answers.items():
        call = partial(lambda o: chat().generate(ENGLISH[:3], details=True, max_new_tokens=12, **o), options)
        yield f"smollm2, {title}", call
    yield "smollm2, score", lambda: chat().score(ENGLISH[:3])
    for form, (data, options) in DOCUMENTS.items():
        call = partial(lambda *a, **o: fastattn.translate_document(translator("en-pt", "auto"), *a, **o), data, form)
        yield f"document {form}", partial(call, **options)
    yield "document docx", lambda: members(fastattn.translate_document(translator("en-pt", "auto"), word(), "docx"))


def search(vectors: np.ndarray) -> list[Any]:
    return [fastattn.semantic_search(vectors[:5], vectors, 7, name) for name in ("cosine", "dot")]


WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def word() -> bytes:
    written = io.BytesIO()
    run = "<w:r>{}<w:t xml:space='preserve'>{}</w:t></w:r>"
    body = run.format("", "The ") + run.format("<w:rPr><w:b/></w:rPr>", "red") + run.format("", " house")
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr("word/document.xml", f"<w:document {WORD}><w:body><w:p>{body}</w:p></w:body></w:document>")
    return written.getvalue()


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


WORDS = ["w5 w6 w7 w8", "w9", "w30 w31 w32 w33 w34 w35 w36 w37 w38 w39 w40 w5 w6 w7"]


def small_model(task: str, path: str) -> Any:
    """What a small model of an architecture computes."""
    if task == "encoder":
        return fastattn.Encoder(path).encode(WORDS)
    if task == "sequence-classification":
        return fastattn.TextClassifier(path).classify(WORDS)
    if task == "token-classification":
        return fastattn.TokenClassifier(path).classify(WORDS)
    if task == "fill-mask":
        model = fastattn.MaskedLanguageModel(path)
        return model.fill([f"w5 {model.mask_token} w7"])
    if task == "decoder":
        return fastattn.Generator(path).generate(WORDS, max_new_tokens=6, details=True)
    rng = np.random.default_rng(5)
    return fastattn.Encoder(path).encode_images([rng.integers(0, 256, (40, 50, 3), np.uint8)])


def main() -> None:
    small = [(name, partial(small_model, task, path)) for name, task, path in json.load(sys.stdin)]
    for name, call in (*attention_results(), *mechanism_results(), *model_results(), *small):
        if sys.argv[2] not in name:
            continue
        hash_ = hashlib.sha256()
        try:
            feed(hash_, call())
        except fastattn.FastattnError as error:
            feed(hash_, f"{error}")
            print(f"{name}: {error}", file=sys.stderr)
        print(f"{name}\t{hash_.hexdigest()[:16]}", flush=True)


if __name__ == "__main__":
    main()
