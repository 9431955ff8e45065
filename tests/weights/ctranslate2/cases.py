"""Little random models in CTranslate2's format, inputs and options: what goldens/ctranslate2.json was made from."""

from pathlib import Path

import numpy as np

from tests.weights.ctranslate2 import writer

SIZE = 40

# Name -> (changes to the random Transformer, how the file is written, changes to config.json).
MODELS: dict[str, tuple[dict, dict, dict]] = {
    "pre-norm": ({}, {}, {}),
    "post-norm": (
        {"pre_norm": False, "activation": 2, "start_from_zero_embedding": True}, {},
        {"add_source_eos": True, "decoder_start_token": "</s>"},
    ),
    "table": (
        {"position_table": 64, "embedding_norm": True, "activation": 3, "scale_embeddings": 1.0}, {},
        {"add_source_bos": True, "add_source_eos": True},
    ),
    "gated rms": ({"gated": True, "rms_norm": True, "biases": False, "activation": 1}, {"version": 5}, {}),
    "grouped": ({"key_heads": 2, "rotary": True}, {}, {"decoder_start_token": None}),
    "relative": ({"relative_buckets": 8}, {}, {}),
    "quantized": ({"encoder_layers": 1}, {"version": 3, "precision": "int16"}, {}),
}  # fmt: skip

# What is produced often, alone and in a row.
SEQUENCES: list[list[str]] = [["▁w3"], ["▁w24", "▁w24"], ["▁w29", "▁w35"], ["▁w23", "▁w8", "▁w8"], ["▁w28"]]

# Every decoding option, alone and with others; "prefix" stands for a target prefix.
LIMIT = {"max_decoding_length": 12}
OPTIONS: list[dict] = [
    {"beam_size": 1},
    {"beam_size": 1, "min_decoding_length": 6, "disable_unk": True, "length_penalty": 0.5},
    {"beam_size": 1, "max_decoding_length": 3, "prefix": True},
    {"beam_size": 1, "patience": 2, "num_hypotheses": 2, "return_attention": True},
    {"beam_size": 2},
    {"beam_size": 4, "num_hypotheses": 4, "return_attention": True},
    {"beam_size": 4, "num_hypotheses": 3, "length_penalty": 0},
    {"beam_size": 4, "num_hypotheses": 4, "length_penalty": 1.6, "disable_unk": True},
    {"beam_size": 3, "num_hypotheses": 6, "patience": 2.0},
    {"beam_size": 5, "num_hypotheses": 3, "patience": 0.5, "length_penalty": 0.3},
    {"beam_size": 3, "num_hypotheses": 3, "patience": 1.5, "length_penalty": 0},
    {"beam_size": 3, "num_hypotheses": 3, "min_decoding_length": 0},
    {"beam_size": 3, "num_hypotheses": 3, "min_decoding_length": 7, "max_decoding_length": 9},
    {"beam_size": 3, "num_hypotheses": 3, "max_decoding_length": 1},
    {"beam_size": 3, "num_hypotheses": 3, "prefix": True, "return_attention": True},
    {"beam_size": 3, "num_hypotheses": 3, "prefix": True, "length_penalty": 0, "min_decoding_length": 0},
    {"beam_size": 3, "num_hypotheses": 3, "prefix": True, "max_decoding_length": 2},
    {"beam_size": 4, "num_hypotheses": 4, "prefix": True, "patience": 2.0}
    | {"min_decoding_length": 5, "disable_unk": True},
    {"beam_size": 16, "num_hypotheses": 16, "max_decoding_length": 6},
    {"beam_size": 4, "num_hypotheses": 4, "coverage_penalty": 0.7},
    {"beam_size": 3, "num_hypotheses": 3, "coverage_penalty": 0.7, "length_penalty": 0, "prefix": True},
    # Greedily, CTranslate2 needs return_attention for it (4.8 writes past an empty list without).
    {"beam_size": 1, "coverage_penalty": 0.7, "return_attention": True, "prefix": True},
    {"beam_size": 1, "repetition_penalty": 2.5, "min_decoding_length": 5},
    {"beam_size": 3, "num_hypotheses": 3, "repetition_penalty": 1.4, "prefix": True},
    {"beam_size": 3, "repetition_penalty": 0.6},
    {"beam_size": 1, "no_repeat_ngram_size": 1, "min_decoding_length": 9},
    {"beam_size": 3, "num_hypotheses": 3, "no_repeat_ngram_size": 2, "repetition_penalty": 0.5, "prefix": True},
    {"beam_size": 2, "no_repeat_ngram_size": 3, "min_decoding_length": 9},
    {"beam_size": 1, "suppress_sequences": SEQUENCES, "min_decoding_length": 5},
    {"beam_size": 4, "num_hypotheses": 4, "suppress_sequences": SEQUENCES, "prefix": True},
    {"beam_size": 4, "num_hypotheses": 4, "prefix_bias_beta": 0.25, "prefix": True},
    {"beam_size": 2, "prefix_bias_beta": 0.9, "prefix": True, "repetition_penalty": 1.5, "disable_unk": True},
    {"beam_size": 1, "prefix_bias_beta": 0.5, "prefix": True, "patience": 2.0, "num_hypotheses": 2},
    {"beam_size": 2, "return_alternatives": True, "num_hypotheses": 6},
    {"beam_size": 1, "return_alternatives": True, "num_hypotheses": 4, "prefix": True, "return_attention": True},
    {"beam_size": 3, "return_alternatives": True, "num_hypotheses": 3, "prefix": True, "repetition_penalty": 1.3}
    | {"no_repeat_ngram_size": 2, "suppress_sequences": SEQUENCES, "min_decoding_length": 5, "length_penalty": 0.5},
    {"beam_size": 2, "return_alternatives": True, "num_hypotheses": 3, "prefix": True, "max_decoding_length": 3},
    {"beam_size": 1, "replace_unknowns": True, "prefix": True, "suppress_sequences": [["▁w1"]]},
    {"beam_size": 4, "num_hypotheses": 4, "replace_unknowns": True, "length_penalty": 0},
    {"beam_size": 1, "use_vmap": True},
    {"beam_size": 4, "num_hypotheses": 4, "use_vmap": True, "return_attention": True},
    {"beam_size": 3, "num_hypotheses": 3, "use_vmap": True, "prefix": True},
    {"beam_size": 2, "use_vmap": True, "prefix_bias_beta": 0.4, "prefix": True},
    {"beam_size": 2, "use_vmap": True, "return_alternatives": True, "num_hypotheses": 4},
    {"beam_size": 2, "use_vmap": True, "repetition_penalty": 1.4, "no_repeat_ngram_size": 2, "disable_unk": True},
    {"beam_size": 1, "end_token": "▁w3"},
    {"beam_size": 1, "end_token": ["▁w3", "</s>"], "return_end_token": True, "prefix": True, "return_attention": True},
    {"beam_size": 4, "num_hypotheses": 4, "end_token": [6, 27, 2], "min_decoding_length": 3},
    {"beam_size": 3, "num_hypotheses": 3, "end_token": ["▁w24", "▁w8", "▁w29"]}
    | {"return_end_token": True, "prefix": True},
    {"beam_size": 3, "return_end_token": True, "length_penalty": 0},
    {"beam_size": 1, "return_alternatives": True, "num_hypotheses": 4, "end_token": ["▁w3", "▁w24"]},
    {"beam_size": 1, "max_input_length": 4},
    {"beam_size": 3, "num_hypotheses": 3, "max_input_length": 6, "prefix": True},
]

# n-grams that the sources hold and some that they do not, a token of no vocabulary on either side, an n-gram twice,
# carriage returns, spaces at the end.
VMAP_SEED = 41


def vocabulary_map() -> str:
    """A vmap.txt for the inputs below: so few tokens a source that it often decides what is chosen."""
    rng = np.random.default_rng(VMAP_SEED)
    tokens = writer.vocabulary(SIZE)

    def draw() -> str:
        return " ".join(tokens[i] for i in rng.integers(3, SIZE, rng.integers(0, 4)))

    lines = [
        f"\t{' '.join(tokens[i] for i in rng.integers(3, SIZE, 9))}",
        f"▁nowhere\t{tokens[30]} ▁nowhere {tokens[31]} ",
    ]
    for source in inputs("pre-norm")[0]:
        for size in (1, 2, 3):
            grams = (source[i : i + size] for i in range(len(source) - size + 1))
            lines += [f"{' '.join(gram)}\t{draw()}" for gram in grams if rng.random() < 0.6]
    lines += [f"{tokens[i]}\t{draw()}\r" for i in range(3, 12)] + [f"{tokens[5]} {tokens[5]}\t{draw()}"]
    return "\n".join(lines) + "\n"


def comparable(name: str, options: dict) -> bool:
    """Whether CTranslate2 does what it means to.

    For alternatives it decodes a prefix of several tokens in one cached pass, where (4.8) the embeddings of all of
    them become zero instead of the first one's, and relative positions count from the last one for all: its scores
    are then not those of its own forced decoding.
    """
    at_once = options.get("return_alternatives") and options.get("prefix")
    return not (at_once and name in ("post-norm", "relative"))


def build(name: str, path: Path) -> Path:
    """Write the model and return its folder."""
    changes, file, config = MODELS[name]
    rng = np.random.default_rng(list(MODELS).index(name))
    variables = writer.random_transformer(
        rng, width=32, inner_width=40, source_vocabulary=SIZE, target_vocabulary=SIZE, **changes
    )
    # So that hypotheses differ by more than rounding, and that they end.
    variables["decoder/projection/weight"] *= np.float32(2.0)
    variables["decoder/projection/bias"] = variables.get("decoder/projection/bias", np.zeros(SIZE, np.float32)).copy()
    variables["decoder/projection/bias"][2] += 3.0
    for layer_name in [variable for variable in variables if variable.endswith("relative_attention_bias")]:
        # One bias for all layers, as in T5.
        variables[layer_name] = variables[f"{layer_name.split('/')[0]}/layer_0/self_attention/relative_attention_bias"]
    variables["decoder/alignment_heads"] = np.int16(2)
    file = dict(file)
    precision = file.pop("precision", "float32")
    if precision != "float32":
        variables = writer.quantize(variables, precision)
    writer.write_model(path, variables, **file)
    writer.write_vocabularies(
        path, writer.vocabulary(SIZE), writer.vocabulary(SIZE), json_files=file.get("version") != 3
    )
    if file.get("version", 6) == 6:
        writer.write_config(path, **config)
    (path / "vmap.txt").write_text(vocabulary_map(), encoding="utf-8", newline="")
    return path


def inputs(name: str) -> tuple[list[list[str]], list[list[str]], list[list[str]]]:
    """(sources, target prefixes, targets to score), as tokens."""
    rng = np.random.default_rng(99)
    tokens = writer.vocabulary(SIZE)
    start = [tokens[7]] if MODELS[name][2].get("decoder_start_token", "") is None else []

    def draw(length: int) -> list[str]:
        return [tokens[i] for i in rng.integers(3, SIZE, length)]

    sources = [draw(length) for length in (1, 2, 3, 5, 8, 13)] + [["▁nowhere", *draw(2)], []]
    prefixes = [start + draw(length) for length in (1, 0, 2, 3, 1, 4, 2, 3)]
    targets = [start + draw(length) for length in (3, 1, 0, 9, 4, 2, 5, 2)]
    return sources, prefixes, targets


def start_prefixes(name: str, count: int) -> list[list[str]] | None:
    """The target prefixes where an option asks for none: those of a model whose callers give the start token."""
    if MODELS[name][2].get("decoder_start_token", "") is None:
        return [[writer.vocabulary(SIZE)[7]]] * count
    return None
