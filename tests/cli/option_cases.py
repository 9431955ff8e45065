"""What each option of each command is seen to do: a new one needs a case here."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.cli.recorders import WIDTH

Expected = dict[str, Any]  # what is seen -> its value, or a function that says whether it is right


class Case(NamedTuple):
    """An option with its value, what is seen of it, what stands beside it, and names that it goes by beside its own."""

    value: tuple[Any, ...]
    expected: Expected
    beside: tuple[Any, ...] = ()


def option(value: Any, expected: Expected, *beside: Any) -> Case:
    return Case((value,), expected, beside)


def flag(expected: Expected, *beside: Any) -> Case:
    return Case((), expected, beside)


# What a search is told, of whatever it is.
SEARCH = {"beam_size": 3, "patience": 1.5, "num_hypotheses": 3, "timeout": 2.5, "seed": 3, "sampling_topk": 3}
HALVES = "length_penalty presence_penalty frequency_penalty sampling_topp sampling_minp sampling_temperature".split()


def searches(call: str, **more: Any) -> dict[str, Case]:
    """Options of a search, each of which arrives under its own name."""
    given = SEARCH | dict.fromkeys(HALVES, 0.5) | {"repetition_penalty": 1.5} | more
    return {f"--{name.replace('_', '-')}": option(value, {f"{call}.{name}": value}) for name, value in given.items()}


def has(*words: str) -> Callable[[str], bool]:
    return lambda text: all(word in text for word in words)


def is_json(text: str) -> bool:
    return text.startswith("{") and all(isinstance(json.loads(line), dict) for line in text.splitlines())


def has_database(content: bytes) -> bool:
    return content.startswith(b"SQLite format 3")


def is_npy(shape: tuple[int, ...]) -> Callable[[bytes], bool]:
    return lambda content: content.startswith(b"\x93NUMPY") and str(shape).encode() in content


def is_path(kind: str, name: str) -> Expected:
    return {f"{kind}.path": lambda path: str(path) == name}


def of_models(kind: str) -> dict[str, Case]:
    return {
        "--model": option("tiny", is_path(kind, "tiny")),
        "--precision": option("bfloat16", {f"{kind}.precision": "bfloat16"}),
        "--threads": option(3, {f"{kind}.threads": 3}),
        "--device": option("auto", {f"{kind}.device": "auto"}),
    }


PAGE = ("-i", "two.txt", "--format", "html")  # a document, which has a guard by default
LANGUAGES = ("-m", "tiny", "--from", "en", "--to", "fr")  # of a language model that translates
# Command -> the arguments that stand before all cases, standard input, and the cases by the option's (longest) name.
BEFORE: dict[str, tuple[Any, ...]] = {
    "caption": ("-m", "tiny", "one.png"),
    "generate": ("-m", "tiny"),
    "search": ("-i", "rows.npy"),
    "rerank": ("-m", "tiny", "Who?"),
    "classify": ("-m", "tiny"),
    "verify": ("tiny",),
    "convert": ("tiny", "out", "-p", "float32"),
    "cache clear": ("--packed",),
}
CASES: dict[str, dict[str, Case]] = {
    "translate": {
        "TEXTS": option("a", {"lines": ["a"]}),
        **of_models("Translator"),
        **searches("translate_iter", split="sentences", target_prefix="b", word_penalty=0.5, coverage_penalty=0.25),
        "--max-length-factor": option(2.5, {"translate_iter.max_length_factor": 2.5}),
        "--from": option("zh", {"translate_iter.source_lang": "zh"}, "-m", "tiny"),
        "--to": option("fr", {"stderr": has("translates to fr"), "code": 2}),
        "--input": option("two.txt", {"lines": ["one", "two"]}),
        "--output": option("o.txt", {"o.txt": b"t\n"}),
        "--format": option("html", {"stdout": "t\n"}, "-i", "two.txt"),
        "--fields": option("a", {"stdout": "a,b\nt,y\n"}, "-i", "table.csv"),
        "--extra": option("front-matter", {"stdout": has("title: t\n")}, "-i", "front.md"),
        "--out-dir": option("out", {"stderr": has("0 files translated already")}, "-i", "other"),
        "--quality": option("tiny", {"models_between.quality": "tiny"}, "--from", "en", "--to", "de"),
        "--prompt": option(
            "alma",
            {"LanguageModelTranslator.prompt": "alma", "LanguageModelTranslator.target_lang": "fr", "stdout": "t\n"},
            *LANGUAGES,
        ),
        "--cache-precision": option("int8", {"LanguageModelTranslator.cache_precision": "int8"}, *LANGUAGES),
        "--json": flag({"stdout": is_json, "translate_iter.return_scores": True}),
        "--num-hypotheses": option(3, {"translate_iter.num_hypotheses": 3, "stdout": "1\tt\n"}),
        "--scores": flag({"stdout": "-1.000000\tt\n", "translate_iter.return_scores": True}),
        "--alignments": flag({"translate_iter.return_attention": True, "stdout": "t ||| \n"}),
        "--show-attention": option("-", {"stdout": "t\nlooks\n"}, "a"),
        "--glossary": option("terms.tsv", {"stdout": has("T")}, "-i", "table.csv", "--format", "txt"),
        "--keep": option("y", {"stdout": has("y")}, "-i", "table.csv", "--format", "txt"),
        "--keep-placeholders": flag({"stdout": has("%s")}, "-i", "directive.txt"),
        "--guard": flag({"translate_iter.texts": lambda texts: "tee" in str(texts)}),
        "--no-guard": flag({"translate_iter.texts": lambda texts: "tee" not in str(texts)}, *PAGE),
        "--capitals": flag({"translate_iter.texts": lambda texts: isinstance(texts, list)}, "-i", "two.txt"),
        "--no-capitals": flag({"translate_iter.return_exceptions": False}, *PAGE),
        "--mark-fuzzy": flag({"stdout": has("#, fuzzy\n")}, "-i", "a.po"),
        "--memory": option("terms.tsv", {"stdout": has("T")}, "-i", "terms.txt"),
        "--cache": option("c.db", {"c.db": has_database}),
        "--on-error": option("mark", {"stdout": has("[not translated: "), "code": 5}, "-i", "bad.txt"),
        "--processes": option(2, {"Translator.processes": 2}),
        "--verbose": flag({"stderr": has("1 line, ", " lines/s")}),
        "--no-repeat-ngram": option(3, {"translate_iter.no_repeat_ngram_size": 3}),
        "--min-length": option(3, {"translate_iter.min_decoding_length": 3}),
        "--max-length": option(9, {"translate_iter.max_decoding_length": 9}),
        "--prefix-bias": option(0.5, {"translate_iter.prefix_bias_beta": 0.5}),
        "--alternatives": flag({"translate_iter.return_alternatives": True}),
        "--min-alternative-prob": option(0.5, {"translate_iter.min_alternative_expansion_prob": 0.5}),
        "--no-shortlist": flag({"translate_iter.shortlist": False}),
        "--disable-unk": flag({"translate_iter.disable_unk": True}),
        "--replace-unknowns": flag({"translate_iter.replace_unknowns": True}),
        "--suppress": Case(("b", "--suppress", "c"), {"translate_iter.suppress_sequences": ["b", "c"]}),
    },
    "generate": {
        "PROMPTS": option("a", {"lines": ["a"], "stdout": "answer\n"}),
        **of_models("Generator"),
        **searches("generate_iter", max_new_tokens=9, min_new_tokens=3, regex="a|b", context="cut"),
        "--model": option("other", is_path("Generator", "other")),
        "--input": option("two.txt", {"lines": ["one\ntwo"]}),
        "--cache-precision": option("int8", {"Generator.cache_precision": "int8"}),
        "--lines": flag({"lines": ["one", "two"]}, "-i", "two.txt"),
        "--output": option("o.txt", {"o.txt": b"answer\n"}),
        "--json": flag({"stdout": is_json}),
        "--log-probs": flag({"generate_iter.return_log_probs": True}, "--json"),
        "--chat": flag({"lines": ["user: line"]}),
        "--system": option("b", {"lines": ["system: b user: line"]}, "--chat"),
        "--score": flag({"score.texts": "line", "stdout": "2.7183\tline\n"}),
        "--verbose": flag({"stderr": has("1 line, ", " lines/s")}),
        "--no-repeat-ngram": option(3, {"generate_iter.no_repeat_ngram_size": 3}),
        "--stop": Case(("b", "--stop", "c"), {"generate_iter.stop": ["b", "c"]}),
        "--end-token": Case(("b", "--end-token", "c"), {"generate_iter.end_token": ["b", "c"]}),
        "--json-schema": option("two.txt", {"generate_iter.json_schema": "one\ntwo\n"}),
        "--no-special-tokens": flag({"generate_iter.special_tokens": False}),
        "--speculate": flag({"generate_iter.speculate": "prompt"}),
        "--draft-model": option(
            "other", {"generate_iter.speculate": lambda made: made is not None} | is_path("Generator", "other")
        ),
        "--suppress": Case(("b", "--suppress", "c"), {"generate_iter.suppress_sequences": ["b", "c"]}),
    },
    "encode": {
        "TEXTS": option("a", {"lines": ["a"]}),
        **of_models("Encoder"),
        "--input": option("two.txt", {"lines": ["one", "two"]}),
        "--output": option("O.NPY", {"O.NPY": is_npy((1, WIDTH))}),
        "--format": option("csv", {"stdout": ",".join(["0.0"] * WIDTH) + "\n"}),
        "--normalize": flag({"encode_iter.normalize_embeddings": True}),
        "--no-normalize": flag({"encode_iter.normalize_embeddings": False}),
        "--pooling": option("cls,max", {"encode_iter.pooling": ("cls", "max")}),
        "--truncate-dim": option(3, {"encode_iter.truncate_dim": 3}),
        "--prompt": option("b", {"encode_iter.prompt": "b"}),
        "--prompt-name": option("b", {"encode_iter.prompt_name": "b"}),
        "--task": option("query", {"encode_iter.task": "query"}),
        "--long": option("mean", {"encode_iter.long": "mean"}),
        "--output-dtype": option("int8", {"encode_iter.output_dtype": "int8"}, "--calibration", "rows.npy"),
        "--calibration": option(
            "rows.npy", {"encode_iter.ranges": lambda ranges: ranges.tolist() == RANGES}, "--output-dtype", "uint8"
        ),
        "--on-error": option("skip", {"code": 5, "stdout": has('"embedding": null')}, "-i", "bytes.txt"),
        "--processes": option(2, {"Encoder.processes": 2}),
        "--verbose": flag({"stderr": has("1 line, ", " lines/s")}),
    },
    "search": {
        "QUERIES": option("a", {"lines": ["a"]}),
        **of_models("Encoder"),
        "--input": option("three.npy", {"semantic_search.corpus": lambda rows: len(rows) == 3}),
        "--texts": option("two.txt", {"stdout": has("\tone\n")}),
        "--top-k": option(3, {"semantic_search.top_k": 3}),
        "--score-function": option("dot", {"semantic_search.score_function": "dot"}),
        "--calibration": option(
            "rows.npy", {"encode_query.ranges": lambda ranges: ranges.tolist() == RANGES}, "-i", "integers.npy"
        ),
        "--json": flag({"stdout": is_json}),
        "--threads": option(3, {"Encoder.threads": 3, "semantic_search.threads": 3}),
        "--device": option("auto", {"Encoder.device": "auto", "semantic_search.device": "auto"}),
    },
    "rerank": {
        "QUERY": Case((), {"rank.query": "Who?"}),
        "DOCUMENTS": option("a", {"lines": ["a"]}),
        **of_models("CrossEncoder"),
        "--model": option("other", is_path("CrossEncoder", "other")),
        "--input": option("two.txt", {"lines": ["one", "two"]}),
        "--top-k": option(3, {"rank.top_k": 3}),
        "--json": flag({"stdout": is_json}),
    },
    "classify": {
        "TEXTS": option("a", {"lines": ["a"]}),
        **of_models("TextClassifier"),
        "--model": option("other", is_path("TextClassifier", "other")),
        "--input": option("two.txt", {"lines": ["one", "two"]}),
        "--output": option("o.tsv", {"o.tsv": b"l\t0.5000\tline\n"}),
        "--top-k": option(3, {"classify.top_k": 3}),
        "--all": flag({"classify.top_k": None}),
        "--json": flag({"stdout": is_json}),
    },
    "caption": {
        "PICTURES": Case(("two.png",), {"lines": ["one.png", "two.png"]}),
        "--model": option("other", is_path("Captioner", "other")),
        "--output": option("o.txt", {"o.txt": b"w\n"}),
        "--beam-size": option(5, {"caption.beam_size": 5}),
        "--num-hypotheses": option(4, {"caption.num_hypotheses": 4, "caption.beam_size": 4}),
        "--map": option("map.svg", {"map.svg": lambda written: written.count(b"<image") == 2}),
        "--json": flag({"stdout": is_json}),
        "--precision": option("int8", {"Captioner.precision": "int8"}),
        "--threads": option(3, {"Captioner.threads": 3}),
    },
    "pull": {
        "NAMES": Case(("minilm", "some/model"), {"lines": ["minilm", "some/model"]}),
        "--quality": option("tiny", {"models_between.quality": "tiny"}, "en-de"),
    },
    "languages": {"--json": flag({"stdout": is_json})},
    "inspect": {"MODEL": option("tiny", {"stdout": has("checkpoint     tiny\n")})},
    "verify": {
        "MODEL": Case((), {"Verification.path": Path("tiny")}),
        "TEXTS": Case(("a", "b"), {"lines": ["a", "b"]}),
        "--precision": option("int8", {"Verification.precision": "int8"}),
        "--bound": option(0.5, {"Verification.bound": 0.5}),
        "--json": flag({"stdout": is_json}),
    },
    "convert": {
        "MODEL": Case((), {"stderr": has("tiny: ")}),
        "OUT": Case((), {"stderr": has("out: "), "out": True}),
        "--precision": option("bfloat16", {"write.precision": "bfloat16"}),
        "--to": option("ctranslate2", {"write.to": "ctranslate2"}),
    },
    "warmup": {},
    "cache": {
        "--entries": flag({"stdout": has("0.0 MB  1970-01-", "code\n")}),
        "--json": flag({"stdout": is_json}),
    },
    "cache clear": {
        "--packed": flag({"removed": ["packed"]}),
        "--kernels": flag({"removed": ["kernels", "packed"]}),
        "--checkpoints": flag({"removed": ["packed", "checkpoints"]}),
        "--all": flag({"removed": ["kernels", "packed", "checkpoints"]}),
        "--older-than": option(36_500, {"removed": []}),
        "--dry-run": flag({"removed": [], "stdout": has("would remove")}),
    },
}
RANGES = [[0.0] * WIDTH, [2.0] * WIDTH]
