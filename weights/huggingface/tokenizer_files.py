"""A tokenizer.json assembled from older files: vocab.txt, vocab.json and merges.txt, or a sentencepiece model.

Each equals the tokenizer that transformers builds from the same files. DeBERTa's equals convert_slow_tokenizer's, which
has the normalizer rules of spm.model; the class that transformers 5 has instead omits these rules.
"""

import base64
import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from fastattn.errors import CheckpointError, TokenizerError
from fastattn.text.sentencepiece import check_spm, read_bytes, read_fields, read_int
from fastattn.weights.containers.json_file import (
    JsonObject,
    decode,
    first_repeated,
    is_text,
    read_object,
    read_optional,
    shorten,
)
from fastattn.weights.folder import Folder

CONFIG = "tokenizer_config.json"
# Names of special tokens, in the order in which transformers gives ids to tokens that a vocabulary lacks.
NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
EXTRA_NAMES = ("additional_special_tokens", "extra_special_tokens")  # of lists of further special tokens
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
MOST_ADDED_TOKENS = 1 << 16

Json = dict[str, Any]  # an object of a tokenizer.json
Token = Json  # an entry of its added_tokens, without the id


@dataclass(frozen=True)
class AddedTokens:
    """The special and other added tokens that a tokenizer's files state."""

    by_name: dict[str, Token]  # name in NAMES -> token, where the files state the token
    extra_tokens: list[Token]  # special tokens without a name
    by_id: dict[int, Token]  # id -> token, where the files state the id
    where: str  # the name in errors of the file that states ids

    def with_extra(self, tokens: list[Token]) -> "AddedTokens":
        return replace(self, extra_tokens=self.extra_tokens + [_token(token, self.where) for token in tokens])

    def content(self, name: str, defaults: Mapping[str, Any]) -> str:
        """The content of a named token, else that of ``defaults``, else ""."""
        token = self.by_name.get(name, defaults.get(name, ""))
        return str(token["content"] if isinstance(token, dict) else token)

    def with_ids(self, vocabulary: Mapping[str, int], defaults: Mapping[str, str | Token]) -> list[Token]:
        """The ``added_tokens`` of a tokenizer.json, by id; a token that the vocabulary lacks gets the next id.

        vocabulary  token -> id
        defaults    name -> token: the named tokens that this class of tokenizers has
        Raises CheckpointError where a file states another id than the assigned one.
        """
        tokens: dict[str, tuple[int, Token]] = {}
        by_name = {**{name: _token(token, "") for name, token in defaults.items()}, **self.by_name}
        named_tokens = [by_name[name] for name in NAMES if name in by_name]
        overrides = {token["content"]: token for token in [*self.extra_tokens, *named_tokens]}
        next_id = max(vocabulary.values(), default=-1) + 1
        for token in [*(self.by_id[index] for index in sorted(self.by_id)), *named_tokens, *self.extra_tokens]:
            content = token["content"]
            if content in tokens:
                continue
            index = vocabulary.get(content, next_id)
            next_id += index == next_id
            tokens[content] = (index, overrides.get(content, token))
        for index, token in self.by_id.items():
            content, (assigned_id, _) = token["content"], tokens[token["content"]]
            if assigned_id != index:
                fault = f"{shorten(content)} has the id {index}, by the vocabulary it is {assigned_id}"
                raise CheckpointError(f"{self.where}: {fault}")
        return [{"id": index} | token for index, token in sorted(tokens.values(), key=lambda pair: pair[0])]


def read_added_tokens(folder: Folder, prefix: str, config: JsonObject) -> AddedTokens:
    """The tokens that tokenizer_config.json (``config``) states, else those of older files."""
    values: Json = {name: config.values.get(name) for name in (*NAMES, *EXTRA_NAMES)}
    where = config.where
    entries = config.nested("added_tokens_decoder").values
    by_id = {_parse_id(index, where): _token(token, where) for index, token in entries.items()}
    if not entries:
        values |= read_optional(folder, prefix + "special_tokens_map.json").values
        ids_file = read_optional(folder, prefix + "added_tokens.json")
        where = ids_file.where if folder.contains(prefix + "added_tokens.json") else where
        ids = ids_file.values
        by_id = {_parse_id(ids[token], where): _token(token, where, special=False) for token in ids}
    if len(by_id) > MOST_ADDED_TOKENS:
        raise CheckpointError(f"{where}: {len(by_id)} added tokens, more than {MOST_ADDED_TOKENS}")
    by_content = {token["content"]: token for token in by_id.values()} if entries else {}
    by_name = {name: _token(values[name], where) for name in NAMES if values.get(name) not in (None, "")}
    by_name = {name: by_content.get(token["content"], token) | {"special": True} for name, token in by_name.items()}
    lists = [values.get(name) for name in EXTRA_NAMES]
    lists = [list(tokens.values()) if isinstance(tokens, Mapping) else tokens for tokens in lists]
    extra_tokens = [_token(token, where) for tokens in lists if isinstance(tokens, list) for token in tokens]
    return AddedTokens(by_name, extra_tokens, by_id, where)


def _parse_id(value: object, where: str) -> int:
    index = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10 else value
    if type(index) is not int or not 0 <= index < 1 << 31:
        raise CheckpointError(f"{where}: the id of an added token should be a number of 31 bits, is {shorten(value)}")
    return index


def _token(value: object, where: str, special: bool = True) -> Token:
    """A token from its content, or from an object with content and flags."""
    fields: Mapping[str, object] = value if isinstance(value, Mapping) else {"content": value}
    content = fields.get("content")
    if not is_text(content) or not content:
        raise CheckpointError(
            f"{where}: a token should be a string, or an object with its content, is {shorten(value)}"
        )
    special = bool(fields.get("special", special))
    flags = dict.fromkeys(FLAGS, False) | {"normalized": not special, "special": special}
    return {"content": content} | {name: bool(fields.get(name, default)) for name, default in flags.items()}


END_OF_TEXT = "<|endoftext|>"
CL100K = (  # pattern of a word; COUNT: how many digits make one word
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{COUNT}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LONGEST_WORD = 100  # characters; a longer word becomes the unknown token
# Default special tokens of classes of tokenizers.
BERT = dict(zip(NAMES[2:], ("[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]")))
ROBERTA = dict(zip(NAMES, ("<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>")))
MPNET: dict[str, str | Token] = {**ROBERTA, "unk_token": "[UNK]", "mask_token": {"content": "<mask>", "lstrip": True}}


@dataclass(frozen=True)
class OlderFiles:
    """The files of a tokenizer that has no tokenizer.json."""

    folder: Folder
    prefix: str  # of the files' names
    config: JsonObject  # tokenizer_config.json
    tokens: AddedTokens  # special and added tokens
    rows: int  # of the embedding


def bert_tokenizer(files: OlderFiles) -> Json:
    tokenizer, ids = _word_piece(files, BERT)
    cls, sep = (files.tokens.content(name, BERT) for name in ("cls_token", "sep_token"))
    return tokenizer | {"post_processor": text_template([cls, "A", sep], [cls, "A", sep, "B", sep], ids)}


def mpnet_tokenizer(files: OlderFiles) -> Json:
    tokenizer, ids = _word_piece(files, MPNET)
    return tokenizer | {"post_processor": _roberta_processing(files.tokens, ids, trim_offsets=True, prefix_space=False)}


def roberta_tokenizer(files: OlderFiles) -> Json:
    names = ("unk_token", "cls_token", "sep_token")
    model, added_tokens, ids = _byte_pairs(files, ROBERTA, names)
    prefix_space = files.config.boolean("add_prefix_space", False)
    processor = _roberta_processing(files.tokens, ids, files.config.boolean("trim_offsets", True), prefix_space)
    byte_level = _byte_level(prefix_space)
    return assemble(model, added_tokens, None, byte_level, byte_level) | {"post_processor": processor}


def gpt2_tokenizer(files: OlderFiles) -> Json:
    model, added_tokens, _ = _byte_pairs(files, dict.fromkeys(NAMES[:3], END_OF_TEXT))
    byte_level = _byte_level(files.config.boolean("add_prefix_space", False))
    return assemble(model, added_tokens, None, byte_level, byte_level)


def qwen2_tokenizer(files: OlderFiles) -> Json:
    model, added_tokens, _ = _byte_pairs(files, dict.fromkeys(("eos_token", "unk_token", "pad_token"), END_OF_TEXT))
    word_pattern = {"Regex": CL100K.replace("COUNT", "1")}
    split = {"type": "Split", "pattern": word_pattern, "behavior": "Isolated", "invert": False}
    pre_tokenizers = [split, _byte_level(files.config.boolean("add_prefix_space", False)) | {"use_regex": False}]
    pre_tokenizer = {"type": "Sequence", "pretokenizers": pre_tokenizers}
    return assemble(model, added_tokens, {"type": "NFC"}, pre_tokenizer, _byte_level(True))


def _byte_level(prefix_space: bool) -> Json:
    return {"type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": True, "use_regex": True}


def _byte_pairs(
    files: OlderFiles, defaults: dict[str, str], needed_names: tuple[str, ...] = ()
) -> tuple[Json, list[Token], dict[str, int]]:
    """(model of byte pairs, added tokens, the ids of all tokens) of a vocab.json and a merges.txt."""
    name = files.prefix + "vocab.json"
    vocabulary = {token: index for index, token in read_ids(files.folder, name, files.rows).items()}
    added_tokens, ids = assign_ids(files.tokens, vocabulary, defaults, needed_names, files.folder.where(name))
    merges = _read_merges(files.folder, files.prefix + "merges.txt", vocabulary)
    return pairs_model(vocabulary, merges), added_tokens, ids


def pairs_model(vocabulary: dict[str, int], merges: list[list[str]], ignore_merges: bool = False) -> Json:
    """The model of a tokenizer.json of byte pairs; ``ignore_merges``: a piece that is a token needs no merges."""
    settings = {"dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": ""}
    flags = {"fuse_unk": False, "byte_fallback": False, "ignore_merges": ignore_merges}
    return {"type": "BPE"} | settings | flags | {"vocab": vocabulary, "merges": merges}


def assemble(model: object, added_tokens: object, normalizer: object, pre_tokenizer: object, decoder: object) -> Json:
    fields = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens}
    return fields | {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "decoder": decoder, "model": model}


def assign_ids(
    tokens: AddedTokens, vocabulary: dict[str, int], defaults: Json, needed_names: tuple[str, ...], where: str
) -> tuple[list[Token], dict[str, int]]:
    """(the added tokens, the ids of all tokens).

    needed_names  names of tokens that each text needs. Raises CheckpointError where the vocabulary lacks one of them,
                  unless a file states the token's id; an unknown token must be in the vocabulary
    """
    contents_with_id = {token["content"] for token in tokens.by_id.values()}
    for name in needed_names:
        content = tokens.content(name, defaults)
        if content not in vocabulary and (name == "unk_token" or content not in contents_with_id):
            raise CheckpointError(f"{where}: lacks the {name} {shorten(content)}")
    added_tokens = tokens.with_ids(vocabulary, defaults)
    return added_tokens, vocabulary | {token["content"]: token["id"] for token in added_tokens}


def join_chat_templates(default: str, tool_use: str) -> str:
    """One Jinja template: ``tool_use`` for conversations with tools, else ``default``; ``default`` where one is ""."""
    if not default or not tool_use:
        return default
    # jinja2 drops a line's end behind a tag and at a template's end, and nothing before a tag with "+".
    default, tool_use = (re.sub(r"(\r\n|\r|\n)\Z", "", source) for source in (default, tool_use))
    return f"{{% if tools is not none %}}\n{tool_use}{{%+ else %}}\n{default}{{%+ endif %}}"


def text_template(single: list[str], pair: list[str], ids: dict[str, int], second_type: int = 1) -> Json:
    """A TemplateProcessing of tokens and the texts "A" and "B"; B and all tokens behind B have type ``second_type``."""
    special_tokens = {token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in single if token != "A"}

    def pieces(tokens: list[str]) -> list[Json]:
        entries, type_id = [], 0
        for token in tokens:
            type_id = second_type if token == "B" else type_id
            entries.append({"Sequence" if token in ("A", "B") else "SpecialToken": {"id": token, "type_id": type_id}})
        return entries

    processing = {"type": "TemplateProcessing", "single": pieces(single), "pair": pieces(pair)}
    return processing | {"special_tokens": dict(sorted(special_tokens.items()))}


def _roberta_processing(tokens: AddedTokens, ids: dict[str, int], trim_offsets: bool, prefix_space: bool) -> Json:
    cls, sep = tokens.content("cls_token", ROBERTA), tokens.content("sep_token", ROBERTA)
    flags = {"trim_offsets": trim_offsets, "add_prefix_space": prefix_space}
    return {"type": "RobertaProcessing", "sep": [sep, ids[sep]], "cls": [cls, ids[cls]]} | flags


def _word_piece(files: OlderFiles, defaults: Json) -> tuple[Json, dict[str, int]]:
    """(tokenizer.json without a post-processor, the ids of all tokens)."""
    name, config = files.prefix + "vocab.txt", files.config
    vocabulary = read_lines(files.folder, name, files.rows)
    names = ("unk_token", "cls_token", "sep_token")
    added_tokens, ids = assign_ids(files.tokens, vocabulary, defaults, names, files.folder.where(name))
    model: Json = {"type": "WordPiece", "unk_token": files.tokens.content("unk_token", defaults)}
    model |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": LONGEST_WORD, "vocab": vocabulary}
    normalizer: Json = {"type": "BertNormalizer", "clean_text": True}
    normalizer["handle_chinese_chars"] = config.boolean("tokenize_chinese_chars", True)
    normalizer["strip_accents"] = config.boolean("strip_accents") if config.has("strip_accents") else None
    normalizer["lowercase"] = config.boolean("do_lower_case", True)
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    return assemble(model, added_tokens, normalizer, {"type": "BertPreTokenizer"}, decoder), ids


def read_lines(folder: Folder, name: str, rows: int | None = None) -> dict[str, int]:
    """token -> id of a file with one token a line: the id is the line's number from 0, the last of equal lines counts.

    Raises CheckpointError for more lines than the embedding's ``rows``.
    """
    text = decode(folder.read(name), folder.where(name))
    count = text.count("\n") + (not text.endswith("\n"))
    if rows is not None and count > rows:
        raise CheckpointError(f"{folder.where(name)}: {count} tokens, but the embedding has {rows} rows")
    return {token.rstrip(): index for index, token in enumerate(text.split("\n")[:count])}


def read_ids(folder: Folder, name: str, rows: int) -> dict[int, str]:
    """id -> token of a vocab.json; CheckpointError for an id that is repeated, or without a row in the embedding."""
    file = read_object(folder, name)
    tokens: dict[int, str] = {}
    for token, index in file.values.items():
        if not is_text(token) or type(index) is not int or not 0 <= index < rows:
            raise CheckpointError(
                f"{file.where}: {shorten(token)} should have an id below {rows}, has {shorten(index)}"
            )
        if index in tokens:
            pair = f"{shorten(tokens[index])} and {shorten(token)}"
            raise CheckpointError(f"{file.where}: {pair} have the same id {index}")
        tokens[index] = token
    return tokens


def _read_merges(folder: Folder, name: str, vocabulary: dict[str, int]) -> list[list[str]]:
    """The pairs of a merges.txt, in order; CheckpointError unless the vocabulary has both tokens and the merged one."""
    where = folder.where(name)
    merges = []
    for number, line in enumerate(decode(folder.read(name), where).split("\n"), 1):
        if line.startswith("#version") or not line.strip():
            continue
        pair = line.rstrip("\r").split(" ")
        if len(pair) != 2 or not all(token in vocabulary for token in (*pair, "".join(pair))):
            raise CheckpointError(
                f"{where}: line {number} should be two tokens of the vocabulary that make a third, is {shorten(line)}"
            )
        merges.append(pair)
    return merges


# sentencepiece models: sentencepiece.bpe.model, spiece.model, spm.model or tokenizer.model.
UNIGRAM, PAIRS = 1, 2  # types of models
NORMAL, UNKNOWN, CONTROL, USER = 1, 2, 3, 4  # types of pieces
SPACE = "\u2581"
# Bounds of ``merges_by_scores``: characters of a piece, merges for each token (real vocabularies have two or three).
LONGEST_PIECE, MOST_MERGES = 256, 16
UNLIKELY = -100.0  # score of a piece that should occur in no text
XLM_ROBERTA: dict[str, str | Token] = {**ROBERTA}
CAMEMBERT = XLM_ROBERTA | {"mask_token": {"content": "<mask>", "lstrip": True}}
LLAMA: dict[str, str | Token] = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
T5: dict[str, str | Token] = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
DEBERTA: dict[str, str | Token] = {"bos_token": "[CLS]", "eos_token": "[SEP]", **BERT}
ALBERT = DEBERTA | {"unk_token": "<unk>", "pad_token": "<pad>"}

# The MBART_COUNT languages of mBART, in the order of their ids, then the languages that only mBART-50 has.
MBART_LANGUAGES = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX "
    "ro_RO ru_RU si_LK tr_TR vi_VN zh_CN af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN "
    "pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
)
MBART_COUNT = 25

_FLOAT = struct.Struct("<f")

Scores = list[tuple[str, float]]


@dataclass(frozen=True)
class Spm:
    """The contents of a sentencepiece model: its pieces with scores and types, and the rules of its normalizer."""

    pieces: Scores
    types: list[int]
    rules: bytes
    where: str  # the name of the model's file in errors

    @property
    def unknown_id(self) -> int:
        """The id of the unknown piece."""
        if UNKNOWN not in self.types:
            raise CheckpointError(f"{self.where}: no unknown piece")
        return self.types.index(UNKNOWN)

    @property
    def symbols(self) -> list[Token]:
        """Control pieces and user symbols, as added tokens, which a tokenizer finds before it splits a text."""
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        return [
            {"content": piece} | flags | {"special": piece_type == CONTROL}
            for (piece, _), piece_type in zip(self.pieces, self.types)
            if piece_type in (CONTROL, USER)
        ]

    def normalizers(self) -> list[Json]:
        rules = base64.b64encode(self.rules).decode()
        return [{"type": "Precompiled", "precompiled_charsmap": rules}] if self.rules else []


def xlm_roberta_tokenizer(files: OlderFiles) -> Json:
    """The vocabulary has fairseq's four tokens, the pieces after the first three, a mask."""
    spm = read_spm(files.folder, files.prefix + "sentencepiece.bpe.model", files.rows)
    if NORMAL in spm.types[:3]:
        raise CheckpointError(f"{spm.where}: the first three pieces should be unknown and control pieces")
    names = ("bos_token", "pad_token", "eos_token", "unk_token", "mask_token")
    *first_scores, mask = ((files.tokens.content(name, ROBERTA), 0.0) for name in names)
    scores = [*first_scores, *spm.pieces[3:], mask]
    return _fairseq_tokenizer(spm, scores, files, XLM_ROBERTA)


def camembert_tokenizer(files: OlderFiles) -> Json:
    """The vocabulary has fairseq's five tokens, the pieces after the first, a mask."""
    spm = read_spm(files.folder, files.prefix + "sentencepiece.bpe.model", files.rows)
    pad, unk, mask = (files.tokens.content(name, ROBERTA) for name in ("pad_token", "unk_token", "mask_token"))
    first_scores = [("<s>NOTUSED", 0.0), (pad, 0.0), ("</s>NOTUSED", 0.0), (unk, 0.0), ("<unk>NOTUSED", UNLIKELY)]
    return _fairseq_tokenizer(spm, [*first_scores, *spm.pieces[1:], (mask, 0.0)], files, CAMEMBERT)


def _fairseq_tokenizer(spm: Spm, scores: Scores, files: OlderFiles, defaults: dict[str, str | Token]) -> Json:
    names = ("unk_token", "bos_token", "eos_token")
    tokenizer, ids = _unigrams(
        spm, scores, 3, files.tokens, defaults, names, spm.normalizers(), _splitters(files.config)
    )
    bos, eos = (files.tokens.content(name, ROBERTA) for name in ("bos_token", "eos_token"))
    processor = text_template([bos, "A", eos], [bos, "A", eos, eos, "B", eos], ids, second_type=0)
    return tokenizer | {"post_processor": processor}


def mbart_tokenizer(files: OlderFiles, language_count: int = MBART_COUNT) -> Json:
    """XLM-RoBERTa's vocabulary, with languages before the mask; the model's reader adds the tokens around a text."""
    spm = read_spm(files.folder, files.prefix + "sentencepiece.bpe.model", files.rows)
    first_scores = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    codes = MBART_LANGUAGES.split()[:language_count]
    scores = [*first_scores, *spm.pieces[3:], *((token, 0.0) for token in (*codes, "<mask>"))]
    normalizers = [*spm.normalizers(), _replace({"Regex": " {2,}"}, " ")]
    names = ("unk_token", "eos_token")
    return _unigrams(spm, scores, 3, files.tokens, XLM_ROBERTA, names, normalizers, [_metaspace("always")], codes)[0]


mbart50_tokenizer = partial(mbart_tokenizer, language_count=len(MBART_LANGUAGES.split()))


def pegasus_tokenizer(files: OlderFiles) -> Json:
    """The vocabulary has <pad>, </s>, two masks, tokens that only training uses, and the pieces after the first two."""
    spm = read_spm(files.folder, files.prefix + "spiece.model", files.rows)
    offset = files.config.integer("offset", 103, minimum=2)
    if offset + len(spm.pieces) > files.rows:
        most = files.rows - len(spm.pieces)
        raise files.config.error("offset", f"at most {most}, the embedding's rows without a piece", offset)
    special_tokens = ["<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{i}>" for i in range(2, offset))]
    scores = [*((token, 0.0 if i < 4 else UNLIKELY) for i, token in enumerate(special_tokens)), *spm.pieces[2:]]
    normalizers = [*spm.normalizers(), _replace({"Regex": " {2,}"}, " ")]
    unknown_id = spm.unknown_id + offset
    tokenizer, ids = _unigrams(
        spm, scores, unknown_id, files.tokens, T5, ("eos_token",), normalizers, [_metaspace("always")], special_tokens
    )
    return tokenizer | {"post_processor": text_template(["A", "</s>"], ["A", "B", "</s>"], ids, second_type=0)}


def albert_tokenizer(files: OlderFiles) -> Json:
    spm = read_spm(files.folder, files.prefix + "spiece.model", files.rows)
    normalizers: list[Json] = [_replace({"String": quotes}, '"') for quotes in ("``", "''")]
    if not files.config.boolean("keep_accents", False):
        normalizers += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if files.config.boolean("do_lower_case", True):
        normalizers.append({"type": "Lowercase"})
    return _cls_sep_tokenizer(spm, files.tokens, ALBERT, normalizers + spm.normalizers(), _splitters(files.config))


def deberta_tokenizer(files: OlderFiles) -> Json:
    spm = read_spm(files.folder, files.prefix + "spm.model", files.rows)
    normalizers: list[Json] = [{"type": "Lowercase"}] if files.config.boolean("do_lower_case", False) else []
    normalizers += [{"type": "Strip", "strip_left": True, "strip_right": True}, *spm.normalizers()]
    normalizers.append(_replace({"Regex": " {2,}"}, " "))
    by_punctuation = files.config.boolean("split_by_punct", False)
    splits: list[Json] = [{"type": "Punctuation", "behavior": "Isolated"}] * by_punctuation
    return _cls_sep_tokenizer(spm, files.tokens, DEBERTA, normalizers, [*splits, _metaspace("always")])


def _cls_sep_tokenizer(
    spm: Spm, tokens: AddedTokens, defaults: Json, normalizers: list[Json], pre_tokenizers: list[Json]
) -> Json:
    names = ("cls_token", "sep_token")
    tokenizer, ids = _unigrams(spm, spm.pieces, spm.unknown_id, tokens, defaults, names, normalizers, pre_tokenizers)
    cls, sep = (tokens.content(name, DEBERTA) for name in names)
    return tokenizer | {"post_processor": text_template([cls, "A", sep], [cls, "A", sep, "B", sep], ids)}


def t5_tokenizer(files: OlderFiles) -> Json:
    """The vocabulary has the pieces, then tokens <extra_id_N> by descending N."""
    spm = read_spm(files.folder, files.prefix + "spiece.model", files.rows)
    count = files.config.integer("extra_ids", 100)
    most = min(files.rows - len(spm.pieces), MOST_ADDED_TOKENS)
    if count > most:
        raise files.config.error("extra_ids", f"at most {most}, the embedding's rows without a piece", count)
    extra_tokens = [f"<extra_id_{i}>" for i in reversed(range(count))]
    scores = spm.pieces + [(token, 0.0) for token in extra_tokens]
    pre_tokenizers = _splitters(files.config)
    tokenizer, ids = _unigrams(
        spm, scores, spm.unknown_id, files.tokens, T5, ("eos_token",), spm.normalizers(), pre_tokenizers, extra_tokens
    )
    eos = files.tokens.content("eos_token", T5)
    return tokenizer | {"post_processor": text_template(["A", eos], ["A", eos, "B", eos], ids, second_type=0)}


def llama_tokenizer(files: OlderFiles) -> Json:
    """Byte pairs with byte fallback; tokenizer_config.json says which special tokens go around a text."""
    spm = read_spm(files.folder, files.prefix + "tokenizer.model", files.rows, PAIRS)
    vocabulary = {piece: index for index, (piece, _) in enumerate(spm.pieces)}
    normal_pieces = [pair for pair, piece_type in zip(spm.pieces, spm.types) if piece_type == NORMAL]
    by_score = [piece for piece, _ in sorted(normal_pieces, key=lambda pair: -pair[1])]
    merges = merges_by_scores(by_score, vocabulary, spm.where)
    added_tokens, ids = assign_ids(files.tokens.with_extra(spm.symbols), vocabulary, LLAMA, (), spm.where)
    model = pairs_model(vocabulary, merges) | {"fuse_unk": True, "byte_fallback": True}
    prefix_space = files.config.boolean("add_prefix_space", True)
    scheme = ("always" if files.config.boolean("legacy", False) else "first") if prefix_space else "never"
    tokens_before, tokens_after = (
        [files.tokens.content(f"{name}_token", LLAMA)] * files.config.boolean(f"add_{name}_token", False)
        for name in ("bos", "eos")
    )
    single = [*tokens_before, "A", *tokens_after]
    post_processor = text_template(single, [*single, *tokens_before, "B", *tokens_after], ids)
    tokenizer = assemble(model, added_tokens, None, _metaspace(scheme) | {"split": False}, spaces_decoder(prefix_space))
    return tokenizer | {"post_processor": post_processor}


def merges_by_scores(pieces: list[str], ids: dict[str, int], where: str) -> list[list[str]]:
    """Merges: all cuts of a piece into two tokens of ``ids``, in the order of ``pieces``. Too many: CheckpointError."""
    most = MOST_MERGES * len(ids)
    cuts = (
        [piece[:cut], piece[cut:]]
        for piece in pieces
        for cut in range(1, len(piece))
        if piece[:cut] in ids and piece[cut:] in ids
    )
    are_short = all(len(piece) <= LONGEST_PIECE for piece in pieces)
    merges = list(islice(cuts, most + 1)) if are_short else []
    if not are_short or len(merges) > most:
        raise CheckpointError(
            f"{where}: its {len(ids)} tokens should have at most {LONGEST_PIECE} characters and {most} merges"
        )
    return merges


def spaces_decoder(prefix_space: bool) -> Json:
    """A decoder: "\u2581" becomes a space, bytes become characters; ``prefix_space``: the first space is removed."""
    decoders: list[Json] = [_replace({"String": SPACE}, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    strip: list[Json] = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix_space else []
    return {"type": "Sequence", "decoders": decoders + strip}


def _unigrams(
    spm: Spm,
    scores: Scores,
    unknown_id: int,
    tokens: AddedTokens,
    defaults: dict[str, str | Token],
    needed_names: tuple[str, ...],
    normalizers: list[Json],
    pre_tokenizers: list[Json],
    special_tokens: Sequence[str] = (),
) -> tuple[Json, dict[str, int]]:
    """(tokenizer.json without a post-processor, the ids of all tokens); ``special_tokens``: those not in ``spm``."""
    vocabulary = {piece: index for index, (piece, _) in enumerate(scores)}
    extra_tokens = spm.symbols + [{"content": token, "special": True} for token in special_tokens]
    added_tokens, ids = assign_ids(tokens.with_extra(extra_tokens), vocabulary, defaults, needed_names, spm.where)
    model = {"type": "Unigram", "unk_id": unknown_id, "vocab": scores, "byte_fallback": False}
    normalizer = {"type": "Sequence", "normalizers": normalizers} if normalizers else None
    pre_tokenizer = {"type": "Sequence", "pretokenizers": pre_tokenizers}
    return assemble(model, added_tokens, normalizer, pre_tokenizer, _metaspace("always")), ids


def _splitters(config: JsonObject) -> list[Json]:
    """Pre-tokenizers that split at spaces and put a leading space before each word."""
    return [{"type": "WhitespaceSplit"}, _metaspace("always" if config.boolean("add_prefix_space", True) else "never")]


def _metaspace(prepend: str) -> Json:
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": prepend, "split": True}


def _replace(pattern: dict[str, str], content: str) -> Json:
    return {"type": "Replace", "pattern": pattern, "content": content}


def read_spm(folder: Folder, name: str, rows: int, model_type: int = UNIGRAM) -> Spm:
    """A sentencepiece model of the type ``model_type``, with at most as many pieces as the embedding has rows."""
    data, where = bytes(folder.read(name)), folder.where(name)
    try:
        check_spm(data)
        spm = _parse_spm(data, where, rows, model_type)
    except TokenizerError as error:
        raise CheckpointError(f"{where}: {error}") from None
    if len({piece for piece, _ in spm.pieces}) != len(spm.pieces):
        repeated = first_repeated(piece for piece, _ in spm.pieces)
        raise CheckpointError(f"{where}: the piece {shorten(repeated)} is there twice")
    return spm


def _parse_spm(data: bytes, where: str, rows: int, model_type: int) -> Spm:
    """Field 1 is a piece, 2 the trainer's settings (type: field 3), 3 the normalizer's settings (rules: field 2)."""
    pieces: Scores = []
    types: list[int] = []
    rules = b""
    for number, wire, value in read_fields(data, where):
        if number == 1:
            piece, score, piece_type = _parse_piece(read_bytes(value, wire, where), where)
            pieces.append((piece, score))
            types.append(piece_type)
            if len(pieces) > rows:
                raise CheckpointError(f"{where}: more pieces than the embedding's {rows} rows")
        elif number == 2:
            fields = read_fields(read_bytes(value, wire, where), where)
            if {read_int(value, where) for field, _, value in fields if field == 3} - {model_type}:
                expected = {UNIGRAM: "unigrams", PAIRS: "pairs (BPE)"}[model_type]
                raise CheckpointError(f"{where}: a sentencepiece model of {expected} is expected here")
        elif number == 3:
            fields = read_fields(read_bytes(value, wire, where), where)
            rules = next((read_bytes(value, wire, where) for field, wire, value in fields if field == 2), b"")
    return Spm(pieces, types, rules, where)


def _parse_piece(data: bytes, where: str) -> tuple[str, float, int]:
    """(piece, score, type) of a piece's message."""
    fields = _parse_short_piece(data) or _parse_long_piece(data, where)
    try:
        piece, score = fields[0].decode("utf-8"), fields[1]
    except UnicodeDecodeError:
        raise CheckpointError(f"{where}: a piece is not UTF-8") from None
    if not piece or not math.isfinite(score):
        raise CheckpointError(f"{where}: the piece {shorten(piece)} has the score {score}")
    return piece, score, fields[2]


def _parse_short_piece(data: bytes) -> tuple[bytes, float, int] | None:
    """``_parse_long_piece`` for the usual layout, fast: a vocabulary has 250,000 pieces. None for another layout.

    Field 1 has fewer than 128 bytes, then come field 2 and perhaps field 3.
    """
    end = 2 + data[1] if len(data) > 1 and data[0] == 0x0A else 0
    tail = data[end:]
    if not 2 < end < 130 or len(tail) not in (5, 7) or tail[0] != 0x15:
        return None
    if len(tail) == 7 and (tail[5] != 0x18 or tail[6] > 0x7F):
        return None
    return data[2:end], _FLOAT.unpack_from(tail, 1)[0], tail[6] if len(tail) == 7 else NORMAL


def _parse_long_piece(data: bytes, where: str) -> tuple[bytes, float, int]:
    piece, score, piece_type = b"", 0.0, NORMAL
    for number, wire, value in read_fields(data, where):
        if number == 1:
            piece = read_bytes(value, wire, where)
        elif number == 2 and isinstance(value, bytes) and len(value) == 4:
            (score,) = _FLOAT.unpack(value)
        elif number == 3:
            piece_type = read_int(value, where)
    return piece, score, piece_type
