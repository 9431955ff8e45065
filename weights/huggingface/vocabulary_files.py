"""A tokenizer.json from vocab.txt (WordPiece), or from vocab.json with merges.txt (byte-level BPE).

Each is what transformers' tokenizer of that name builds from the same files.
"""

from typing import Any

from fastattn.errors import CheckpointError
from fastattn.weights.containers.json_file import JsonObject, read_object, shorten
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.added_tokens import AddedTokens, Token

LONGEST_WORD = 100  # characters, beyond which a word is unknown
BERT = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
ROBERTA = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "cls_token": "<s>",
    "mask_token": "<mask>",
}
MPNET: dict[str, str | Token] = {**ROBERTA, "unk_token": "[UNK]", "mask_token": {"content": "<mask>", "lstrip": True}}


def bert_tokenizer(folder: Folder, prefix: str, config: JsonObject, tokens: AddedTokens, rows: int) -> dict[str, Any]:
    """The tokenizer of BERT, DistilBERT and ELECTRA."""
    tokenizer, ids = _word_piece(folder, prefix, config, tokens, BERT, rows)
    cls, sep = tokens.content("cls_token", "[CLS]"), tokens.content("sep_token", "[SEP]")
    return tokenizer | {"post_processor": template([cls, "A", sep], [cls, "A", sep, "B", sep], ids)}


def mpnet_tokenizer(folder: Folder, prefix: str, config: JsonObject, tokens: AddedTokens, rows: int) -> dict[str, Any]:
    tokenizer, ids = _word_piece(folder, prefix, config, tokens, MPNET, rows)
    return tokenizer | {"post_processor": _roberta_processing(tokens, ids, True, False)}


def roberta_tokenizer(
    folder: Folder, prefix: str, config: JsonObject, tokens: AddedTokens, rows: int
) -> dict[str, Any]:
    vocabulary = _read_ids(folder, prefix + "vocab.json", rows)
    where = folder.where(prefix + "vocab.json")
    added, ids = placed(tokens, vocabulary, ROBERTA, ("unk_token", "cls_token", "sep_token"), where)
    space, trim = config.boolean("add_prefix_space", False), config.boolean("trim_offsets", True)
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
        "merges": _read_merges(folder, prefix + "merges.txt", vocabulary),
    }
    byte_level = {"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": True, "use_regex": True}
    return assembled(model, added, None, byte_level, byte_level) | {
        "post_processor": _roberta_processing(tokens, ids, trim, space)
    }


def assembled(
    model: object, added: object, normalizer: object, pre_tokenizer: object, decoder: object
) -> dict[str, Any]:
    """A tokenizer.json without its post-processor."""
    head = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added}
    return head | {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "decoder": decoder, "model": model}


def placed(
    tokens: AddedTokens,
    vocabulary: dict[str, int],
    defaults: dict[str, Any],
    needed: tuple[str, ...],
    where: str,
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


def _word_piece(
    folder: Folder, prefix: str, config: JsonObject, tokens: AddedTokens, defaults: dict[str, Any], rows: int
) -> tuple[dict[str, Any], dict[str, int]]:
    """(tokenizer.json without a post-processor, the ids of all tokens)."""
    vocabulary = read_lines(folder, prefix + "vocab.txt", rows)
    needed = ("unk_token", "cls_token", "sep_token")
    added, ids = placed(tokens, vocabulary, defaults, needed, folder.where(prefix + "vocab.txt"))
    model = {
        "type": "WordPiece",
        "unk_token": tokens.content("unk_token", "[UNK]"),
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


def _read_ids(folder: Folder, name: str, rows: int) -> dict[str, int]:
    """token -> id of a vocab.json, each id once and a row of the embedding."""
    file = read_object(folder, name)
    tokens: dict[int, str] = {}
    for token, index in file.values.items():
        if type(index) is not int or not 0 <= index < rows:
            raise CheckpointError(
                f"{file.where}: {shorten(token)} should have an id below {rows}, has {shorten(index)}"
            )
        if index in tokens:
            raise CheckpointError(f"{file.where}: {shorten(tokens[index])} and {shorten(token)} have the id {index}")
        tokens[index] = token
    return file.values


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
