"""A tokenizer.json from vocab.txt (WordPiece), or from vocab.json with merges.txt (byte-level BPE).

Each is what transformers' tokenizer of that name builds from the same files.
"""

from dataclasses import dataclass
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.weights.containers.json_file import JsonObject, is_text, read_object, shorten
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.added_tokens import NAMES, AddedTokens, Token

LONGEST_WORD = 100  # characters, beyond which a word is unknown
BERT = dict(zip(NAMES[2:], ("[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]")))
ROBERTA = dict(zip(NAMES, ("<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>")))
MPNET: dict[str, str | Token] = {**ROBERTA, "unk_token": "[UNK]", "mask_token": {"content": "<mask>", "lstrip": True}}


@dataclass(frozen=True)
class OlderFiles:
    """The files of a tokenizer that has no tokenizer.json.

    prefix  of the files' names
    config  tokenizer_config.json
    tokens  special and added tokens
    rows    of the embedding
    """

    folder: Folder
    prefix: str
    config: JsonObject
    tokens: AddedTokens
    rows: int


def bert_tokenizer(files: OlderFiles) -> dict[str, Any]:
    """The tokenizer of BERT, DistilBERT and ELECTRA."""
    tokenizer, ids = _word_piece(files, BERT)
    cls, sep = (files.tokens.content(name, BERT[name]) for name in ("cls_token", "sep_token"))
    return tokenizer | {"post_processor": template([cls, "A", sep], [cls, "A", sep, "B", sep], ids)}


def mpnet_tokenizer(files: OlderFiles) -> dict[str, Any]:
    tokenizer, ids = _word_piece(files, MPNET)
    return tokenizer | {"post_processor": _roberta_processing(files.tokens, ids, True, False)}


def roberta_tokenizer(files: OlderFiles) -> dict[str, Any]:
    name = files.prefix + "vocab.json"
    vocabulary = {token: index for index, token in read_ids(files.folder, name, files.rows).items()}
    needed = ("unk_token", "cls_token", "sep_token")
    added, ids = added_with_ids(files.tokens, vocabulary, ROBERTA, needed, files.folder.where(name))
    space, trim = files.config.boolean("add_prefix_space", False), files.config.boolean("trim_offsets", True)
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": vocabulary,
        "merges": _read_merges(files.folder, files.prefix + "merges.txt", vocabulary),
    }
    byte_level = {"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": True, "use_regex": True}
    return assembled(model, added, None, byte_level, byte_level) | {
        "post_processor": _roberta_processing(files.tokens, ids, trim, space)
    }


def assembled(
    model: object, added: object, normalizer: object, pre_tokenizer: object, decoder: object
) -> dict[str, Any]:
    """A tokenizer.json without its post-processor."""
    head = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added}
    return head | {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "decoder": decoder, "model": model}


def added_with_ids(
    tokens: AddedTokens, vocabulary: dict[str, int], defaults: dict[str, Any], needed: tuple[str, ...], where: str
) -> tuple[list[Token], dict[str, int]]:
    """(the added tokens, the ids of all tokens); CheckpointError where the vocabulary lacks one that is ``needed``.

    needed  names of those without which no text can be encoded; the unknown token is one of the vocabulary's own
    """
    stated = {token["content"] for token in tokens.stated.values()}
    for name in needed:
        default = defaults[name]
        content = tokens.content(name, default if isinstance(default, str) else default["content"])
        if content not in vocabulary and (name == "unk_token" or content not in stated):
            raise CheckpointError(f"{where}: lacks the {name} {shorten(content)}")
    added = tokens.with_ids(vocabulary, defaults)
    return added, vocabulary | {token["content"]: token["id"] for token in added}


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

    rows  of the embedding; CheckpointError for more lines
    """
    text = _text(folder, name)
    count = text.count("\n") + (not text.endswith("\n"))
    if rows is not None and count > rows:
        raise CheckpointError(f"{folder.where(name)}: {count} tokens, but the embedding has {rows} rows")
    return {token.rstrip(): index for index, token in enumerate(text.split("\n")[:count])}


def _text(folder: Folder, name: str) -> str:
    try:
        return str(folder.read(name), "utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{folder.where(name)}: not UTF-8 at byte {error.start}") from None


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
    for number, line in enumerate(_text(folder, name).split("\n"), 1):
        if line.startswith("#version") or not line.strip():
            continue
        parts = line.rstrip("\r").split(" ")
        if len(parts) != 2 or not all(part in vocabulary for part in (*parts, "".join(parts))):
            raise CheckpointError(
                f"{where}: line {number} should be two tokens of the vocabulary that make a third, is {shorten(line)}"
            )
        merges.append(parts)
    return merges
