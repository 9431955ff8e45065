"""Vocabularies and added tokens of older tokenizer files, from which a tokenizer.json is assembled."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.weights.containers.json_file import JsonObject, decoded, is_text, read_object, read_optional, shorten
from fastattn.weights.folder import Folder

CONFIG = "tokenizer_config.json"
# Their order is that in which transformers gives ids to those that a vocabulary lacks.
NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
EXTRA = ("additional_special_tokens", "extra_special_tokens")
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
MOST_ADDED = 1 << 16

Token = dict[str, Any]  # a token as tokenizer.json has it under added_tokens, without its id


@dataclass(frozen=True)
class AddedTokens:
    """The tokens that a tokenizer's files state."""

    named: dict[str, Token]  # name in NAMES -> token, of those that are stated
    extra: list[Token]  # further special ones
    stated: dict[int, Token]  # id -> token
    where: str  # the file that states them, in errors

    def and_extra(self, tokens: list[Token]) -> "AddedTokens":
        return replace(self, extra=self.extra + [_token(token, self.where) for token in tokens])

    def content(self, name: str, default: str) -> str:
        return str(self.named[name]["content"]) if name in self.named else default

    def with_ids(self, vocabulary: Mapping[str, int], defaults: Mapping[str, str | Token]) -> list[Token]:
        """The ``added_tokens`` of a tokenizer.json, by id; a token that the vocabulary lacks gets the next id.

        vocabulary  token -> id
        defaults    name -> token, of the named ones that a kind of tokenizer has
        Raises CheckpointError where a file states another id.
        """
        tokens: dict[str, tuple[int, Token]] = {}
        wanted = {**{name: _token(token, "") for name, token in defaults.items()}, **self.named}
        named = [wanted[name] for name in NAMES if name in wanted]
        overriding = {token["content"]: token for token in [*self.extra, *named]}
        following = max(vocabulary.values(), default=-1) + 1
        for token in [*(self.stated[index] for index in sorted(self.stated)), *named, *self.extra]:
            content = token["content"]
            if content in tokens:
                continue
            index = vocabulary.get(content, following)
            following += index == following
            tokens[content] = (index, overriding.get(content, token))
        for index, token in self.stated.items():
            given = tokens[token["content"]][0]
            if given != index:
                raise CheckpointError(
                    f"{self.where}: {shorten(token['content'])} has the id {index}, by the vocabulary it is {given}"
                )
        return [{"id": index} | token for index, token in sorted(tokens.values(), key=lambda pair: pair[0])]


def read_added_tokens(folder: Folder, prefix: str, config: JsonObject) -> AddedTokens:
    """The tokens stated in the tokenizer_config.json ``config``; older files say what it does not."""
    values: dict[str, Any] = {name: config.values.get(name) for name in (*NAMES, *EXTRA)}
    where = config.where
    decoder = config.nested("added_tokens_decoder").values
    stated = {_index(index, where): _token(token, where) for index, token in decoder.items()}
    if not decoder:
        values |= read_optional(folder, prefix + "special_tokens_map.json").values
        added = read_optional(folder, prefix + "added_tokens.json")
        where = added.where if folder.contains(prefix + "added_tokens.json") else where
        stated = {_index(index, where): _token(token, where, special=False) for token, index in added.values.items()}
    if len(stated) > MOST_ADDED:
        raise CheckpointError(f"{where}: {len(stated)} added tokens, more than {MOST_ADDED}")
    by_content = {token["content"]: token for token in stated.values()} if decoder else {}
    named = {name: _token(values[name], where) for name in NAMES if values.get(name) not in (None, "")}
    named = {name: by_content.get(token["content"], token) | {"special": True} for name, token in named.items()}
    listed = [values.get(name) for name in EXTRA]
    listed = [list(found.values()) if isinstance(found, Mapping) else found for found in listed]
    extra = [_token(token, where) for found in listed if isinstance(found, list) for token in found]
    return AddedTokens(named, extra, stated, where)


def _index(value: object, where: str) -> int:
    index = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10 else value
    if type(index) is not int or not 0 <= index < 1 << 31:
        raise CheckpointError(f"{where}: the id of an added token should be a number of 31 bits, is {shorten(value)}")
    return index


def _token(value: object, where: str, special: bool = True) -> Token:
    """A token from its content, or from an object of its content and flags."""
    stated: Mapping[str, object] = value if isinstance(value, Mapping) else {"content": value}
    content = stated.get("content")
    if not is_text(content) or not content:
        raise CheckpointError(
            f"{where}: a token should be a string, or an object with its content, is {shorten(value)}"
        )
    special = bool(stated.get("special", special))
    flags = dict.fromkeys(FLAGS, False) | {"normalized": not special, "special": special}
    return {"content": content} | {name: bool(stated.get(name, default)) for name, default in flags.items()}


END_OF_TEXT = "<|endoftext|>"
CL100K = (  # words, with COUNT numerals at once
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{COUNT}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LONGEST_WORD = 100  # characters, beyond which a word is unknown
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


def bert_tokenizer(files: OlderFiles) -> dict[str, Any]:
    tokenizer, ids = _word_piece(files, BERT)
    cls, sep = (files.tokens.content(name, BERT[name]) for name in ("cls_token", "sep_token"))
    return tokenizer | {"post_processor": template([cls, "A", sep], [cls, "A", sep, "B", sep], ids)}


def mpnet_tokenizer(files: OlderFiles) -> dict[str, Any]:
    tokenizer, ids = _word_piece(files, MPNET)
    return tokenizer | {"post_processor": _roberta_processing(files.tokens, ids, True, False)}


def roberta_tokenizer(files: OlderFiles) -> dict[str, Any]:
    needed = ("unk_token", "cls_token", "sep_token")
    model, added, ids = _byte_pairs(files, ROBERTA, needed)
    space, trim = files.config.boolean("add_prefix_space", False), files.config.boolean("trim_offsets", True)
    processor = _roberta_processing(files.tokens, ids, trim, space)
    return assembled(model, added, None, _byte_level(space), _byte_level(space)) | {"post_processor": processor}


def gpt2_tokenizer(files: OlderFiles) -> dict[str, Any]:
    model, added, _ = _byte_pairs(files, dict.fromkeys(NAMES[:3], END_OF_TEXT))
    byte_level = _byte_level(files.config.boolean("add_prefix_space", False))
    return assembled(model, added, None, byte_level, byte_level)


def qwen2_tokenizer(files: OlderFiles) -> dict[str, Any]:
    model, added, _ = _byte_pairs(files, dict.fromkeys(("eos_token", "unk_token", "pad_token"), END_OF_TEXT))
    words = {"Regex": CL100K.replace("COUNT", "1")}
    split = {"type": "Split", "pattern": words, "behavior": "Isolated", "invert": False}
    steps = [split, _byte_level(files.config.boolean("add_prefix_space", False)) | {"use_regex": False}]
    return assembled(model, added, {"type": "NFC"}, {"type": "Sequence", "pretokenizers": steps}, _byte_level(True))


def _byte_level(space: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": True, "use_regex": True}


def _byte_pairs(
    files: OlderFiles, defaults: dict[str, str], needed: tuple[str, ...] = ()
) -> tuple[dict[str, Any], list[Token], dict[str, int]]:
    """(model of byte pairs, added tokens, the ids of all tokens) of a vocab.json and a merges.txt."""
    name = files.prefix + "vocab.json"
    vocabulary = {token: index for index, token in read_ids(files.folder, name, files.rows).items()}
    added, ids = added_with_ids(files.tokens, vocabulary, defaults, needed, files.folder.where(name))
    return pairs_model(vocabulary, _read_merges(files.folder, files.prefix + "merges.txt", vocabulary)), added, ids


def pairs_model(vocabulary: dict[str, int], merges: list[list[str]], whole: bool = False) -> dict[str, Any]:
    """The model of a tokenizer.json of byte pairs; ``whole``: a piece that is a token is not put together by merges."""
    usual = {"dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": ""}
    flags = {"fuse_unk": False, "byte_fallback": False, "ignore_merges": whole}
    return {"type": "BPE"} | usual | flags | {"vocab": vocabulary, "merges": merges}


def assembled(
    model: object, added: object, normalizer: object, pre_tokenizer: object, decoder: object
) -> dict[str, Any]:
    head = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added}
    return head | {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "decoder": decoder, "model": model}


def added_with_ids(
    tokens: AddedTokens, vocabulary: dict[str, int], defaults: dict[str, Any], needed: tuple[str, ...], where: str
) -> tuple[list[Token], dict[str, int]]:
    """(the added tokens, the ids of all tokens); CheckpointError where the vocabulary lacks one that is ``needed``: no
    text can be encoded without; the unknown token is one of the vocabulary's own."""
    stated = {token["content"] for token in tokens.stated.values()}
    for name in needed:
        default = defaults[name]
        content = tokens.content(name, default if isinstance(default, str) else default["content"])
        if content not in vocabulary and (name == "unk_token" or content not in stated):
            raise CheckpointError(f"{where}: lacks the {name} {shorten(content)}")
    added = tokens.with_ids(vocabulary, defaults)
    return added, vocabulary | {token["content"]: token["id"] for token in added}


def chat_template(usual: str, of_tools: str) -> str:
    """One Jinja template of two: the second for conversations with tools; either may be ""."""
    if not usual or not of_tools:
        return usual
    # jinja2 takes away a line's end behind a tag and at a template's end, and nothing before a tag with "+".
    usual, of_tools = (re.sub(r"(\r\n|\r|\n)\Z", "", source) for source in (usual, of_tools))
    return f"{{% if tools is not none %}}\n{of_tools}{{%+ else %}}\n{usual}{{%+ endif %}}"


def template(single: list[str], pair: list[str], ids: dict[str, int], second_type: int = 1) -> dict[str, Any]:
    """A TemplateProcessing of tokens and of "A" and "B", the texts; what is at and after B is of ``second_type``."""
    special = {token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in single if token != "A"}

    def pieces(tokens: list[str]) -> list[dict[str, Any]]:
        listed, kind = [], 0
        for token in tokens:
            kind = second_type if token == "B" else kind
            listed.append({"Sequence" if token in ("A", "B") else "SpecialToken": {"id": token, "type_id": kind}})
        return listed

    return {
        "type": "TemplateProcessing",
        "single": pieces(single),
        "pair": pieces(pair),
        "special_tokens": dict(sorted(special.items())),
    }


def _roberta_processing(tokens: AddedTokens, ids: dict[str, int], trim: bool, space: bool) -> dict[str, Any]:
    cls, sep = tokens.content("cls_token", "<s>"), tokens.content("sep_token", "</s>")
    flags = {"trim_offsets": trim, "add_prefix_space": space}
    return {"type": "RobertaProcessing", "sep": [sep, ids[sep]], "cls": [cls, ids[cls]]} | flags


def _word_piece(files: OlderFiles, defaults: dict[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """(tokenizer.json without a post-processor, the ids of all tokens)."""
    name, config = files.prefix + "vocab.txt", files.config
    vocabulary = read_lines(files.folder, name, files.rows)
    needed = ("unk_token", "cls_token", "sep_token")
    added, ids = added_with_ids(files.tokens, vocabulary, defaults, needed, files.folder.where(name))
    model = {
        "type": "WordPiece",
        "unk_token": files.tokens.content("unk_token", "[UNK]"),
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": LONGEST_WORD,
        "vocab": vocabulary,
    }
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": config.boolean("tokenize_chinese_chars", True),
        "strip_accents": config.boolean("strip_accents") if config.has("strip_accents") else None,
        "lowercase": config.boolean("do_lower_case", True),
    }
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    return assembled(model, added, normalizer, {"type": "BertPreTokenizer"}, decoder), ids


def read_lines(folder: Folder, name: str, rows: int | None = None) -> dict[str, int]:
    """token -> id of a file with a token a line, whose number is its id; the last of equal lines counts.
    CheckpointError for more lines than the embedding has ``rows``."""
    text = decoded(folder.read(name), folder.where(name))
    count = text.count("\n") + (not text.endswith("\n"))
    if rows is not None and count > rows:
        raise CheckpointError(f"{folder.where(name)}: {count} tokens, but the embedding has {rows} rows")
    return {token.rstrip(): index for index, token in enumerate(text.split("\n")[:count])}


def read_ids(folder: Folder, name: str, rows: int) -> dict[int, str]:
    """id -> token of a vocab.json, each id once and a row of the embedding."""
    file = read_object(folder, name)
    tokens: dict[int, str] = {}
    for token, index in file.values.items():
        if not is_text(token) or type(index) is not int or not 0 <= index < rows:
            raise CheckpointError(
                f"{file.where}: {shorten(token)} should have an id below {rows}, has {shorten(index)}"
            )
        if index in tokens:
            found = f"{shorten(tokens[index])} and {shorten(token)}"
            raise CheckpointError(f"{file.where}: {found} have the same id {index}")
        tokens[index] = token
    return tokens


def _read_merges(folder: Folder, name: str, vocabulary: dict[str, int]) -> list[list[str]]:
    """The pairs of a merges.txt, in their order; both parts and what they make are in the vocabulary."""
    where = folder.where(name)
    merges = []
    for number, line in enumerate(decoded(folder.read(name), folder.where(name)).split("\n"), 1):
        if line.startswith("#version") or not line.strip():
            continue
        parts = line.rstrip("\r").split(" ")
        if len(parts) != 2 or not all(part in vocabulary for part in (*parts, "".join(parts))):
            raise CheckpointError(
                f"{where}: line {number} should be two tokens of the vocabulary that make a third, is {shorten(line)}"
            )
        merges.append(parts)
    return merges
