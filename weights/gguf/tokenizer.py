"""A language model's tokenizer.json and text settings from a GGUF file's metadata.

Tokenizer "gpt2" is byte-level byte-pair encoding with stored merges; a name says which expressions split texts first.
Tokenizer "llama" is sentencepiece's, whose merges follow from scores: among neighbours that form a token together, the
pair whose token has the highest score is merged first.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.text_spec import GeneratorText
from fastattn.weights.containers.json_file import JsonObject, first_repeated, shorten
from fastattn.weights.huggingface.tokenizer_files import (
    CL100K,
    SPACE,
    assemble,
    join_chat_templates,
    merges_by_scores,
    pairs_model,
    spaces_decoder,
    text_template,
)

GGML, CHAT_KEY = "tokenizer.ggml.", "tokenizer.chat_template"
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)  # types of tokens
LONGEST_TOKEN = 1000  # characters
# Expressions of pre-tokenizers: each splits the pieces that the one before it made.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"  # Chinese characters and Japanese syllables


@dataclass(frozen=True)
class Splitting:
    """How a byte-level tokenizer treats a text before its merges."""

    patterns: tuple[str, ...]  # expressions that split the text, one after the other
    nfc: bool = False  # whether the text is composed first (Unicode's normalization form C)
    ignore_merges: bool = False  # whether a piece that is a token becomes that token without merges
    bos: bool = False  # whether texts begin with the beginning token where the file does not say


# Value of tokenizer.ggml.pre -> how the tokenizer splits.
SPLITTINGS = {
    "gpt-2": Splitting((_GPT2,)),
    "olmo": Splitting((_GPT2,), nfc=True),  # GPT-NeoX's
    **dict.fromkeys(("smollm", "starcoder"), Splitting((r"\p{N}", _GPT2))),
    "qwen2": Splitting((CL100K.replace("COUNT", "1"),), nfc=True),
    **dict.fromkeys(("deepseek-r1-qwen", "hunyuan"), Splitting((CL100K.replace("COUNT", "1"),))),
    **dict.fromkeys(("hunyuan-dense", "deepseek-v3"), Splitting((r"\p{N}{1,3}", _CJK, _DEEPSEEK))),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3"), Splitting((CL100K.replace("COUNT", "1,3"),), ignore_merges=True, bos=True)
    ),
    "dbrx": Splitting((CL100K.replace("COUNT", "1,3"),)),  # OLMo 2's
    "tekken": Splitting((_TEKKEN,), ignore_merges=True, bos=True),
}
# Tokens that end an answer, besides the end token that a file names: models tuned for conversations have a token of
# their own for the end of a turn.
END_TOKENS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<|end_of_text|>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)  # fmt: skip
# Name of a special token in a file -> the token's name in tokenizer_config.json.
SPECIAL_NAMES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a file with their ids and types."""

    metadata: JsonObject
    ids: dict[str, int]
    types: list[int]

    def of_types(self, *types: int) -> Iterable[tuple[int, str]]:
        return ((index, token) for token, index in self.ids.items() if self.types[index] in types)

    def special_id(self, name: str, default: int = -1) -> int:
        """The id of the special token ``name``; -1 if there is none."""
        index = self.metadata.integer(f"{GGML}{name}_token_id", default, minimum=-1)
        return index if index < len(self.types) else -1


def read_text(metadata: JsonObject, rows: int, max_length: int) -> GeneratorText:
    """The text of a language model whose embedding has ``rows`` rows; CheckpointError for unsupported tokenizers."""
    model = metadata.choice(GGML + "model", ("gpt2", "llama"))
    vocabulary = _read_vocabulary(metadata, rows)
    tokenizer, adds_bos = (_byte_level_tokenizer if model == "gpt2" else _sentencepiece_tokenizer)(vocabulary)
    default_ids = {"bos": 1, "eos": 2, "unknown": 0} if model == "llama" else {}
    special_ids = {
        name: vocabulary.special_id(name, default_ids.get(name, -1)) for name in (*SPECIAL_NAMES, "eot", "eom")
    }
    tokens = list(vocabulary.ids)
    flags = {name: metadata.boolean(f"{GGML}add_{name}_token", adds_bos and name == "bos") for name in ("bos", "eos")}
    bos, eos = ([tokens[special_ids[name]]] if flags[name] and special_ids[name] >= 0 else [] for name in flags)
    if bos or eos:
        pair = [*bos, "A", *eos, *bos, "B", *eos]
        tokenizer["post_processor"] = text_template([*bos, "A", *eos], pair, vocabulary.ids)
    known_end_ids = {index for index, token in vocabulary.of_types(CONTROL, USER) if token in END_TOKENS}
    own_end_ids = {special_ids[name] for name in ("eos", "eot", "eom")} - {-1}
    return GeneratorText(
        tokenizer=json.dumps(tokenizer).encode(),
        max_length=max_length,
        end_ids=tuple(sorted(own_end_ids | known_end_ids)),
        chat_template=join_chat_templates(*(metadata.string(CHAT_KEY + suffix, "") for suffix in ("", ".tool_use"))),
        special_tokens={
            field: tokens[special_ids[name]] for name, field in SPECIAL_NAMES.items() if special_ids[name] >= 0
        },
    )


def _read_vocabulary(metadata: JsonObject, rows: int) -> Vocabulary:
    tokens = _read_list(metadata, "tokens", None)
    if len(tokens) > rows:
        raise CheckpointError(f"{metadata.where}: {len(tokens)} tokens, but the embedding has {rows} rows")
    ids = {token: index for index, token in enumerate(tokens)}
    if len(ids) < len(tokens):
        raise CheckpointError(f"{metadata.where}: the token {shorten(first_repeated(tokens))} is given twice")
    if any(not token or len(token) > LONGEST_TOKEN for token in tokens):
        raise CheckpointError(f"{metadata.where}: tokens should have from 1 to {LONGEST_TOKEN} characters")
    types = (
        _read_list(metadata, "token_type", len(tokens)) if metadata.has(GGML + "token_type") else [NORMAL] * len(tokens)
    )
    return Vocabulary(metadata, ids, list(types))


def _read_list(metadata: JsonObject, name: str, length: int | None) -> list[Any]:
    """A list of texts if ``length`` is None, else of ``length`` finite numbers."""
    values = metadata.values.get(GGML + name)
    if length is None:
        if not isinstance(values, list) or not values or not isinstance(values[0], str):
            raise metadata.error(GGML + name, "a list of texts", values)
        return values
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf" and values.shape == (length,):
        if np.isfinite(values).all():
            numbers: list[Any] = values.tolist()
            return numbers
    raise metadata.error(GGML + name, f"{length} finite numbers", values)


def _byte_level_tokenizer(vocabulary: Vocabulary) -> tuple[dict[str, Any], bool]:
    """(tokenizer.json without a post-processor, whether texts begin with the beginning token by default)."""
    metadata, ids = vocabulary.metadata, vocabulary.ids
    splitting = SPLITTINGS[metadata.choice(GGML + "pre", SPLITTINGS)]
    merges = []
    for merge in _read_list(metadata, "merges", None):
        first, _, second = merge.partition(" ")
        if not (first in ids and second in ids and first + second in ids):
            fault = f"a merge should be two tokens that make a third, is {shorten(merge)}"
            raise CheckpointError(f"{metadata.where}: {fault}")
        merges.append([first, second])
    splits: list[dict[str, Any]] = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in splitting.patterns
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = assemble(
        pairs_model(ids, merges, splitting.ignore_merges),
        _added_tokens(vocabulary),
        {"type": "NFC"} if splitting.nfc else None,
        {"type": "Sequence", "pretokenizers": [*splits, byte_level]},
        byte_level,
    )
    return tokenizer, splitting.bos


def _sentencepiece_tokenizer(vocabulary: Vocabulary) -> tuple[dict[str, Any], bool]:
    """``_byte_level_tokenizer`` for sentencepiece's tokenizers."""
    metadata, ids = vocabulary.metadata, vocabulary.ids
    scores = _read_list(metadata, "scores", len(ids))
    by_score = sorted(vocabulary.of_types(NORMAL), key=lambda entry: -scores[entry[0]])
    merges = merges_by_scores([token for _, token in by_score], ids, metadata.where)
    unknown_token = next((token for _, token in vocabulary.of_types(UNKNOWN)), None)
    flags = {"fuse_unk": True, "byte_fallback": any(vocabulary.of_types(BYTE))}
    model = pairs_model(ids, merges) | {"unk_token": unknown_token} | flags
    prefix_space = metadata.boolean(GGML + "add_space_prefix", True)
    prepend: list[dict[str, Any]] = [{"type": "Prepend", "prepend": SPACE}] if prefix_space else []
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    normalizer = {"type": "Sequence", "normalizers": [*prepend, replace]}
    return assemble(model, _added_tokens(vocabulary), normalizer, None, spaces_decoder(prefix_space)), True


def _added_tokens(vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """The tokens that are found in a text before it is split: special tokens and the user's."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return [
        {"id": index, "content": token} | flags | {"special": vocabulary.types[index] != USER}
        for index, token in vocabulary.of_types(CONTROL, USER, UNKNOWN)
    ]
