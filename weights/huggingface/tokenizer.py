"""The text of a model in a Hugging Face directory: its tokenizer.json, made of older files if need be, and settings."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import StackSpec
from fastattn.spec.text_spec import TRUNCATION_SIDES, EncoderText
from fastattn.weights.containers.json_file import JsonObject, is_text, read_optional, shorten
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface import tokenizer_files as builders
from fastattn.weights.huggingface.tokenizer_files import CONFIG, AddedTokens, OlderFiles, read_added_tokens

FILE = "tokenizer.json"
NO_LIMIT = 2**31 - 1
Builder = Callable[[OlderFiles], dict[str, Any]]
# Class of transformers -> (the function that makes the class's tokenizer.json from older files, names of those files).
BUILDERS: dict[str, tuple[Builder, tuple[str, ...]]] = {
    **dict.fromkeys(
        ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"), (builders.bert_tokenizer, ("vocab.txt",))
    ),
    "MPNetTokenizer": (builders.mpnet_tokenizer, ("vocab.txt",)),
    **dict.fromkeys(("BartTokenizer", "RobertaTokenizer"), (builders.roberta_tokenizer, ("vocab.json", "merges.txt"))),
    "GPT2Tokenizer": (builders.gpt2_tokenizer, ("vocab.json", "merges.txt")),
    "Qwen2Tokenizer": (builders.qwen2_tokenizer, ("vocab.json", "merges.txt")),
    "LlamaTokenizer": (builders.llama_tokenizer, ("tokenizer.model",)),
    "XLMRobertaTokenizer": (builders.xlm_roberta_tokenizer, ("sentencepiece.bpe.model",)),
    "CamembertTokenizer": (builders.camembert_tokenizer, ("sentencepiece.bpe.model",)),
    "AlbertTokenizer": (builders.albert_tokenizer, ("spiece.model",)),
    "T5Tokenizer": (builders.t5_tokenizer, ("spiece.model",)),
    "DebertaV2Tokenizer": (builders.deberta_tokenizer, ("spm.model",)),
}
# The same for translators, whose readers put other tokens around texts than these classes do.
TRANSLATORS: dict[str, tuple[Builder, tuple[str, ...]]] = {
    "MBartTokenizer": (builders.mbart_tokenizer, ("sentencepiece.bpe.model",)),
    "MBart50Tokenizer": (builders.mbart50_tokenizer, ("sentencepiece.bpe.model",)),
    "PegasusTokenizer": (builders.pegasus_tokenizer, ("spiece.model",)),
}
CAUSAL_CLASSES = ("GPT2Tokenizer", "Qwen2Tokenizer", "LlamaTokenizer")  # of language models, without cls_token
DEFAULT_MASKS = ("[MASK]", "<mask>")  # mask tokens where no file names the mask token
# model_type -> the tokenizer's class, where no file names the class.
CLASSES = {
    model_type: f"{name}Tokenizer"
    for name, model_types in {
        "Bert": "bert distilbert electra nomic_bert", "XLMRoberta": "gte xlm-roberta", "Qwen2": "qwen2 qwen3",
        "T5": "t5 mt5 umt5", "GPT2": "gpt2", "MPNet": "mpnet", "Roberta": "roberta", "Camembert": "camembert",
        "Albert": "albert", "DebertaV2": "deberta-v2", "Bart": "bart", "M2M100": "m2m_100", "MBart": "mbart",
        "Pegasus": "pegasus",
    }.items()
    for model_type in model_types.split()
}  # fmt: skip
# Classes that give the model token types by default, as in transformers 5.
TYPED_CLASSES = ("BertTokenizer", "ElectraTokenizer", "DebertaTokenizer", "DebertaV2Tokenizer")
# Setting of tokenizer_config.json -> the setting of a BertNormalizer that it overrides in transformers.
NORMALIZER_SETTINGS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}


def read_text(
    folder: Folder, prefix: str, config: JsonObject, spec: StackSpec, max_length: int | None = None
) -> EncoderText:
    """The text of the encoder whose files' names begin with ``prefix``, with default pooling, without normalization.

    config      config.json
    max_length  replaces the tokenizer's greatest length
    The padding side is not read: batches are ragged, and "lasttoken" pooling takes a text's own last token.
    Raises CheckpointError for a tokenizer that is missing or does not fit the embedding, or files that disagree.
    """
    settings = read_optional(folder, prefix + CONFIG)
    tokenizer, data = read_tokenizer(folder, prefix, config, settings, spec.vocabulary)
    stated_side = str(_as_dict(tokenizer.get("truncation")).get("direction", "right")).lower()
    side = settings.string("truncation_side", stated_side)
    if side not in TRUNCATION_SIDES:
        raise settings.error("truncation_side", f"one of {', '.join(TRUNCATION_SIDES)}", side)
    # the lesser of model_max_length, which is huge if there is no limit, and config.json's positions
    length = settings.integer("model_max_length", settings.integer("max_len", NO_LIMIT, minimum=1), minimum=1)
    positions = config.values.get("max_position_embeddings")
    length = min(length, positions) if type(positions) is int and positions > 0 else length
    inputs, class_name = settings.values.get("model_input_names"), tokenizer_class(config, settings)
    return EncoderText(
        tokenizer=data,
        max_length=min(max_length or length, spec.positions.limit or NO_LIMIT),
        truncation_side=side,
        token_types="token_type_ids" in inputs if isinstance(inputs, list) else class_name in TYPED_CLASSES,
        mask_token=_mask_token(folder, prefix, settings, tokenizer),
        pooling=default_pooling(config),
    )


def default_pooling(config: JsonObject) -> tuple[str, ...]:
    """The default pooling, as in sentence-transformers: a causal language model's last token, else the mean."""
    names = config.values.get("architectures")
    is_language_model = isinstance(names, list) and bool(names) and str(names[0]).endswith("ForCausalLM")
    return ("lasttoken",) if is_language_model and config.boolean("is_causal", True) else ("mean",)


def _mask_token(folder: Folder, prefix: str, settings: JsonObject, tokenizer: dict[str, Any]) -> str:
    """The mask token: the one that a file names, else a default one, if the tokenizer has that token; else ""."""
    vocabulary = _as_dict(_as_dict(tokenizer.get("model")).get("vocab"))
    contents = [token.get("content") for token in _added_tokens(tokenizer)]
    own_mask = read_added_tokens(folder, prefix, settings).content("mask_token", {})
    return next((mask for mask in (own_mask, *DEFAULT_MASKS) if mask and (mask in contents or mask in vocabulary)), "")


def read_tokenizer(
    folder: Folder, prefix: str, config: JsonObject, settings: JsonObject, rows: int
) -> tuple[dict[str, Any], bytes]:
    """(the contents of a tokenizer.json, its bytes)."""
    class_name = tokenizer_class(config, settings)
    builder, files = (BUILDERS | TRANSLATORS).get(class_name, (None, ()))
    # sentence-transformers stores tokenizer.json in the transformer's folder, old versions sometimes only at the top.
    for file_prefix in dict.fromkeys((prefix, "")):
        if folder.contains(file_prefix + FILE):
            data, where = bytes(folder.read(file_prefix + FILE)), folder.where(file_prefix + FILE)
            tokenizer = _parse(data, where)
            is_changed = _set_normalizer(tokenizer, settings, class_name)
            if settings.nested("auto_map").has("AutoTokenizer"):  # other classes leave the file as it is
                is_changed |= _add_end_tokens(tokenizer, settings, read_added_tokens(folder, file_prefix, settings))
            is_changed |= _fit_to_rows(tokenizer, rows, where)
            _check_agreement(folder, file_prefix, tokenizer, settings, class_name)
            return tokenizer, json.dumps(tokenizer).encode() if is_changed else data
        if builder is not None and all(folder.contains(file_prefix + file) for file in files):
            tokens = read_added_tokens(folder, prefix, settings)
            tokenizer = builder(OlderFiles(folder, file_prefix, settings, tokens, rows))
            _add_end_tokens(tokenizer, settings, tokens)
            _fit_to_rows(tokenizer, rows, folder.where(file_prefix + files[0]))
            return tokenizer, json.dumps(tokenizer).encode()
    hint = f", nor {' and '.join(files)} of a {class_name}" if files else ""
    raise CheckpointError(f"{folder.where(prefix + FILE)}: no such file{hint}; save the model with a fast tokenizer")


def tokenizer_class(config: JsonObject, settings: JsonObject) -> str:
    """The name of the tokenizer's class in transformers."""
    default = config.string("tokenizer_class", CLASSES.get(config.string("model_type", ""), ""))
    return settings.string("tokenizer_class", default).removesuffix("Fast")


def _parse(data: bytes, where: str) -> dict[str, Any]:
    """A tokenizer.json. Repeated names are accepted: the tokenizers library takes the last."""
    try:
        tokenizer = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # ValueError: also of UTF-8
        raise CheckpointError(f"{where}: not JSON: {str(error).splitlines()[0]}") from None
    if not isinstance(tokenizer, dict):
        raise CheckpointError(f"{where}: should hold a JSON object, holds {shorten(tokenizer)}")
    return tokenizer


def _as_dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _added_tokens(tokenizer: dict[str, Any]) -> list[dict[str, Any]]:
    entries = tokenizer.get("added_tokens")
    return [token for token in entries if isinstance(token, dict)] if isinstance(entries, list) else []


def _set_normalizer(tokenizer: dict[str, Any], settings: JsonObject, class_name: str) -> bool:
    """Set a BertNormalizer as tokenizer_config.json says; returns whether a setting differed."""
    normalizer = _as_dict(tokenizer.get("normalizer"))
    if normalizer.get("type") != "BertNormalizer" or class_name not in BUILDERS:
        return False
    is_changed = False
    for name, normalizer_name in NORMALIZER_SETTINGS.items():
        if settings.has(name) and normalizer.get(normalizer_name) != settings.boolean(name):
            normalizer[normalizer_name] = settings.boolean(name)
            is_changed = True
    return is_changed


def _add_end_tokens(tokenizer: dict[str, Any], settings: JsonObject, tokens: AddedTokens) -> bool:
    """If tokenizer.json adds no tokens, add the end tokens that tokenizer_config.json demands; returns whether any.

    gte-Qwen2 has such files: its own code adds the tokens.
    """
    processor = tokenizer.get("post_processor")
    names = [name for name in ("bos_token", "eos_token") if settings.boolean(f"add_{name}", False)]
    if not names or any(_special_tokens(processor)):
        return False
    ids = _token_ids(tokenizer)
    bos, eos = (
        [content] if name in names and (content := tokens.content(name, {})) in ids else []
        for name in ("bos_token", "eos_token")
    )
    if bos or eos:
        template = builders.text_template([*bos, "A", *eos], [*bos, "A", *eos, *bos, "B", *eos], ids)
        sequence = {"type": "Sequence", "processors": [processor, template]}
        tokenizer["post_processor"] = sequence if processor else template
    return bool(bos or eos)


def _fit_to_rows(tokenizer: dict[str, Any], rows: int, where: str) -> bool:
    """Remove special tokens without a row in the embedding, which become plain text; returns whether there were any.

    Raises CheckpointError where another token, or a special token that every text gets, has no row.
    """
    vocabulary = _as_dict(tokenizer.get("model")).get("vocab")
    ids = {index: token for token, index in _as_dict(vocabulary).items() if type(index) is int}
    if isinstance(vocabulary, list):
        ids = {len(vocabulary) - 1: shorten(vocabulary[-1])} if vocabulary else {}
    added_tokens = _added_tokens(tokenizer)
    tokens_with_rows = [
        one for one in added_tokens if type(one.get("id")) is not int or one["id"] < rows or not one.get("special")
    ]
    ids |= {token["id"]: token.get("content") for token in tokens_with_rows if type(token.get("id")) is int}
    ids |= {index: token for token, index in _special_tokens(tokenizer.get("post_processor"))}
    greatest_id = max(ids, default=0)
    if greatest_id >= rows:
        raise CheckpointError(
            f"{where}: {shorten(ids[greatest_id])} has the id {greatest_id}, but the embedding has {rows} rows"
        )
    if len(tokens_with_rows) < len(added_tokens):
        tokenizer["added_tokens"] = tokens_with_rows
    return len(tokens_with_rows) < len(added_tokens)


def _special_tokens(processor: object) -> Iterator[tuple[str, int]]:
    """(token, id) of the special tokens that a post-processor adds to texts."""
    match processor:
        case {"type": "Sequence", "processors": list(steps)}:
            for step in steps:
                yield from _special_tokens(step)
        case {"type": "TemplateProcessing", "special_tokens": dict(entries)}:
            for token in entries.values():
                match token:
                    case {"ids": list(ids), "tokens": list(tokens)}:
                        yield from ((token, index) for token, index in zip(tokens, ids) if type(index) is int)
        case {"sep": [sep, int(sep_id)], "cls": [cls, int(cls_id)]}:
            yield from ((cls, cls_id), (sep, sep_id))


def _check_agreement(
    folder: Folder, prefix: str, tokenizer: dict[str, Any], settings: JsonObject, class_name: str
) -> None:
    """Raise CheckpointError where files disagree on the ids of special tokens around a text, or on the first and last.

    Other tokens, flags and padding do not change a text's ids, and may differ.
    """
    where = folder.where(prefix + FILE)
    special_ids = {token: index for token, index in _special_tokens(tokenizer.get("post_processor")) if is_text(token)}
    token_ids = _token_ids(tokenizer)
    files: dict[str, dict[str, int]] = {where: token_ids}
    if folder.contains(prefix + "vocab.txt") and BUILDERS.get(class_name, (None, ()))[1] == ("vocab.txt",):
        files[folder.where(prefix + "vocab.txt")] = builders.read_lines(folder, prefix + "vocab.txt")
    tokens = read_added_tokens(folder, prefix, settings)
    files[tokens.where] = {token["content"]: index for index, token in tokens.by_id.items()}
    for file, ids in files.items():
        for token, index in special_ids.items():
            if ids.get(token, index) != index:
                raise CheckpointError(
                    f"{where}: puts {shorten(token)} around a text as id {index}, in {file} it is {ids[token]}"
                )
    if class_name in BUILDERS and class_name not in CAUSAL_CLASSES and special_ids:
        for name in ("cls_token", "sep_token"):
            content = tokens.by_name.get(name, {}).get("content")
            if content is not None and token_ids.get(content) not in special_ids.values():
                raise CheckpointError(
                    f"{where}: puts {', '.join(map(shorten, special_ids))} around a text, but in {settings.where} the "
                    f"{name} is {shorten(content)}"
                )


def _token_ids(tokenizer: dict[str, Any]) -> dict[str, int]:
    """token -> id of added tokens, and of the vocabulary's tokens if the vocabulary is an object."""
    vocabulary = _as_dict(_as_dict(tokenizer.get("model")).get("vocab"))
    ids = {
        str(token["content"]): token.get("id") for token in _added_tokens(tokenizer) if is_text(token.get("content"))
    }
    return {token: index for token, index in (vocabulary | ids).items() if type(index) is int}


def tokens_by_id(tokenizer: dict[str, Any]) -> dict[int, str]:
    """id -> token of a tokenizer.json, with added tokens."""
    vocabulary = _as_dict(tokenizer.get("model")).get("vocab")
    entries = vocabulary if isinstance(vocabulary, list) else []
    tokens = {i: str(entry[0]) for i, entry in enumerate(entries) if isinstance(entry, (list, tuple)) and entry}
    return tokens | {index: token for token, index in _token_ids(tokenizer).items()}


def tokens_around_text(tokenizer: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(tokens before a text, tokens behind a text) that a tokenizer.json adds."""
    match tokenizer.get("post_processor"):
        case {"type": "TemplateProcessing", "single": list(pieces)}:
            tokens = [_as_dict(_as_dict(piece).get("SpecialToken")).get("id") for piece in pieces]
            position = tokens.index(None) if None in tokens else len(tokens)
            return tuple(map(str, tokens[:position])), tuple(map(str, tokens[position + 1 :]))
        case {"sep": [str(sep), int()], "cls": [str(cls), int()]}:
            return (cls,), (sep,)
    return (), ()


def unknown_token(tokenizer: dict[str, Any]) -> str:
    """The unknown token of a tokenizer.json; <unk> where the file names none."""
    model = _as_dict(tokenizer.get("model"))
    index, token = model.get("unk_id"), model.get("unk_token")
    return str(token) if is_text(token) else tokens_by_id(tokenizer).get(index if type(index) is int else -1, "<unk>")
