"""The text of a model in a Hugging Face directory: tokenizer.json, or one made of older files, and its settings."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import StackSpec
from fastattn.spec.text_spec import TRUNCATION_SIDES, EncoderText
from fastattn.weights.containers.json_file import JsonObject, is_text, read_optional, shorten
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface import tokenizer_files as older
from fastattn.weights.huggingface.tokenizer_files import CONFIG, AddedTokens, OlderFiles, read_added_tokens, template

FILE = "tokenizer.json"
NO_LIMIT = 2**31 - 1
Builder = Callable[[OlderFiles], dict[str, Any]]
# Class of transformers -> the function that makes its tokenizer.json from older files, and the files.
BUILDERS: dict[str, tuple[Builder, tuple[str, ...]]] = {
    **dict.fromkeys(
        ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"), (older.bert_tokenizer, ("vocab.txt",))
    ),
    "MPNetTokenizer": (older.mpnet_tokenizer, ("vocab.txt",)),
    **dict.fromkeys(("BartTokenizer", "RobertaTokenizer"), (older.roberta_tokenizer, ("vocab.json", "merges.txt"))),
    "GPT2Tokenizer": (older.gpt2_tokenizer, ("vocab.json", "merges.txt")),
    "Qwen2Tokenizer": (older.qwen2_tokenizer, ("vocab.json", "merges.txt")),
    "LlamaTokenizer": (older.llama_tokenizer, ("tokenizer.model",)),
    "XLMRobertaTokenizer": (older.xlm_roberta_tokenizer, ("sentencepiece.bpe.model",)),
    "CamembertTokenizer": (older.camembert_tokenizer, ("sentencepiece.bpe.model",)),
    "AlbertTokenizer": (older.albert_tokenizer, ("spiece.model",)),
    "T5Tokenizer": (older.t5_tokenizer, ("spiece.model",)),
    "DebertaV2Tokenizer": (older.deberta_tokenizer, ("spm.model",)),
}
# The same for translators, whose texts have other tokens at their ends than these classes add.
TRANSLATORS: dict[str, tuple[Builder, tuple[str, ...]]] = {
    "MBartTokenizer": (older.mbart_tokenizer, ("sentencepiece.bpe.model",)),
    "MBart50Tokenizer": (older.mbart50_tokenizer, ("sentencepiece.bpe.model",)),
    "PegasusTokenizer": (older.pegasus_tokenizer, ("spiece.model",)),
}
WITHOUT_PAIRS = ("GPT2Tokenizer", "Qwen2Tokenizer", "LlamaTokenizer")  # language models, whose texts have no cls_token
USUAL_MASKS = ("[MASK]", "<mask>")  # mask tokens where no file names one
# Model type -> class, where no file names one.
CLASSES = {
    kind: f"{name}Tokenizer"
    for name, kinds in {
        "Bert": "bert distilbert electra nomic_bert", "XLMRoberta": "gte xlm-roberta", "Qwen2": "qwen2 qwen3",
        "T5": "t5 mt5 umt5", "GPT2": "gpt2", "MPNet": "mpnet", "Roberta": "roberta", "Camembert": "camembert",
        "Albert": "albert", "DebertaV2": "deberta-v2", "Bart": "bart", "M2M100": "m2m_100", "MBart": "mbart",
        "Pegasus": "pegasus",
    }.items()
    for kind in kinds.split()
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
    max_length  replaces the tokenizer's own
    The padding side is not read: batches are ragged, and "lasttoken" pooling takes a text's own last token.
    Raises CheckpointError for a missing tokenizer, one that does not fit the embedding, or files that disagree.
    """
    settings = read_optional(folder, prefix + CONFIG)
    tokenizer, data = read_tokenizer(folder, prefix, config, settings, spec.vocabulary)
    stated_side = str(_object(tokenizer.get("truncation")).get("direction", "right")).lower()
    side = settings.string("truncation_side", stated_side)
    if side not in TRUNCATION_SIDES:
        raise settings.error("truncation_side", f"one of {', '.join(TRUNCATION_SIDES)}", side)
    # the least of model_max_length, which is huge if there is no limit, and config.json's positions
    length = settings.integer("model_max_length", settings.integer("max_len", NO_LIMIT, minimum=1), minimum=1)
    positions = config.values.get("max_position_embeddings")
    length = min(length, positions) if type(positions) is int and positions > 0 else length
    inputs, kind = settings.values.get("model_input_names"), tokenizer_class(config, settings)
    return EncoderText(
        tokenizer=data,
        max_length=min(max_length or length, spec.positions.limit or NO_LIMIT),
        truncation_side=side,
        token_types="token_type_ids" in inputs if isinstance(inputs, list) else kind in TYPED_CLASSES,
        mask_token=_mask_token(folder, prefix, settings, tokenizer),
        pooling=usual_pooling(config),
    )


def usual_pooling(config: JsonObject) -> tuple[str, ...]:
    """The default pooling, as in sentence-transformers: a causal language model's last token, else the mean."""
    names = config.values.get("architectures")
    is_language_model = isinstance(names, list) and bool(names) and str(names[0]).endswith("ForCausalLM")
    return ("lasttoken",) if is_language_model and config.boolean("is_causal", True) else ("mean",)


def _mask_token(folder: Folder, prefix: str, settings: JsonObject, tokenizer: dict[str, Any]) -> str:
    """The mask token: the one that a file names, or a usual one, if the tokenizer has it; else ""."""
    vocabulary = _object(_object(tokenizer.get("model")).get("vocab"))
    added = [token.get("content") for token in _added(tokenizer)]
    own_mask = read_added_tokens(folder, prefix, settings).content("mask_token", "")
    return next((token for token in (own_mask, *USUAL_MASKS) if token and (token in added or token in vocabulary)), "")


def read_tokenizer(
    folder: Folder, prefix: str, config: JsonObject, settings: JsonObject, rows: int
) -> tuple[dict[str, Any], bytes]:
    """(the contents of a tokenizer.json, its bytes)."""
    kind = tokenizer_class(config, settings)
    builder, files = (BUILDERS | TRANSLATORS).get(kind, (None, ()))
    # sentence-transformers stores it in the transformer module's folder, old versions sometimes only at the top.
    for top in dict.fromkeys((prefix, "")):
        if folder.contains(top + FILE):
            data, where = bytes(folder.read(top + FILE)), folder.where(top + FILE)
            tokenizer = _parsed(data, where)
            changed = _follow_settings(tokenizer, settings, kind)
            if settings.nested("auto_map").has("AutoTokenizer"):  # transformers' own classes do not change a file
                changed |= _add_ends(tokenizer, settings, read_added_tokens(folder, top, settings))
            changed |= _fit(tokenizer, rows, where)
            _check_agreement(folder, top, tokenizer, settings, kind)
            return tokenizer, json.dumps(tokenizer).encode() if changed else data
        if builder is not None and all(folder.contains(top + file) for file in files):
            tokens = read_added_tokens(folder, prefix, settings)
            tokenizer = builder(OlderFiles(folder, top, settings, tokens, rows))
            _add_ends(tokenizer, settings, tokens)
            _fit(tokenizer, rows, folder.where(top + files[0]))
            return tokenizer, json.dumps(tokenizer).encode()
    hint = f", nor {' and '.join(files)} of a {kind}" if files else ""
    raise CheckpointError(f"{folder.where(prefix + FILE)}: no such file{hint}; save the model with a fast tokenizer")


def tokenizer_class(config: JsonObject, settings: JsonObject) -> str:
    """The name of the tokenizer's class in transformers."""
    of_model = config.string("tokenizer_class", CLASSES.get(config.string("model_type", ""), ""))
    return settings.string("tokenizer_class", of_model).removesuffix("Fast")


def _parsed(data: bytes, where: str) -> dict[str, Any]:
    """A tokenizer.json. Repeated names are accepted: the library takes the last."""
    try:
        tokenizer = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # of UTF-8 too
        raise CheckpointError(f"{where}: not JSON: {str(error).splitlines()[0]}") from None
    if not isinstance(tokenizer, dict):
        raise CheckpointError(f"{where}: should hold a JSON object, holds {shorten(tokenizer)}")
    return tokenizer


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _added(tokenizer: dict[str, Any]) -> list[dict[str, Any]]:
    entries = tokenizer.get("added_tokens")
    return [token for token in entries if isinstance(token, dict)] if isinstance(entries, list) else []


def _follow_settings(tokenizer: dict[str, Any], settings: JsonObject, kind: str) -> bool:
    """Set a BertNormalizer as tokenizer_config.json says; returns whether that changes it."""
    normalizer = _object(tokenizer.get("normalizer"))
    if normalizer.get("type") != "BertNormalizer" or kind not in BUILDERS:
        return False
    changed = False
    for name, of_normalizer in NORMALIZER_SETTINGS.items():
        if settings.has(name) and normalizer.get(of_normalizer) != settings.boolean(name):
            normalizer[of_normalizer] = settings.boolean(name)
            changed = True
    return changed


def _add_ends(tokenizer: dict[str, Any], settings: JsonObject, tokens: AddedTokens) -> bool:
    """Add tokens at a text's ends if tokenizer_config.json wants them and the file adds none; returns whether it did.

    gte-Qwen2 has such files: its own code adds the tokens.
    """
    processor = tokenizer.get("post_processor")
    missing = [name for name in ("bos_token", "eos_token") if settings.boolean(f"add_{name}", False)]
    if not missing or any(_around(processor)):
        return False
    ids = _special_ids(tokenizer)
    bos, eos = (
        [content] if name in missing and (content := tokens.content(name, "")) in ids else []
        for name in ("bos_token", "eos_token")
    )
    if bos or eos:
        ends = template([*bos, "A", *eos], [*bos, "A", *eos, *bos, "B", *eos], ids)
        tokenizer["post_processor"] = {"type": "Sequence", "processors": [processor, ends]} if processor else ends
    return bool(bos or eos)


def _fit(tokenizer: dict[str, Any], rows: int, where: str) -> bool:
    """Remove special tokens without a row in the embedding, which then are plain text; returns whether there were any.

    Raises CheckpointError for other tokens without rows, and for special tokens that every text gets.
    """
    vocabulary = _object(tokenizer.get("model")).get("vocab")
    ids = {index: token for token, index in _object(vocabulary).items() if type(index) is int}
    if isinstance(vocabulary, list):
        ids = {len(vocabulary) - 1: shorten(vocabulary[-1])} if vocabulary else {}
    added = _added(tokenizer)
    fitting = [
        token for token in added if type(token.get("id")) is not int or token["id"] < rows or not token.get("special")
    ]
    ids |= {token["id"]: token.get("content") for token in fitting if type(token.get("id")) is int}
    ids |= {index: token for token, index in _around(tokenizer.get("post_processor"))}
    greatest = max(ids, default=0)
    if greatest >= rows:
        raise CheckpointError(
            f"{where}: {shorten(ids[greatest])} has the id {greatest}, but the embedding has {rows} rows"
        )
    if len(fitting) < len(added):
        tokenizer["added_tokens"] = fitting
    return len(fitting) < len(added)


def _around(processor: object) -> Iterator[tuple[str, int]]:
    """(token, id) of the special tokens that a post-processor adds to texts."""
    match processor:
        case {"type": "Sequence", "processors": list(steps)}:
            for step in steps:
                yield from _around(step)
        case {"type": "TemplateProcessing", "special_tokens": dict(special)}:
            for token in special.values():
                match token:
                    case {"ids": list(ids), "tokens": list(tokens)}:
                        yield from ((token, index) for token, index in zip(tokens, ids) if type(index) is int)
        case {"sep": [sep, int(sep_id)], "cls": [cls, int(cls_id)]}:
            yield from ((cls, cls_id), (sep, sep_id))


def _check_agreement(folder: Folder, prefix: str, tokenizer: dict[str, Any], settings: JsonObject, kind: str) -> None:
    """Raise CheckpointError where two files give a special token different ids.

    Further tokens, flags and padding may differ: they do not change ids.
    """
    where = folder.where(prefix + FILE)
    around = {token: index for token, index in _around(tokenizer.get("post_processor")) if is_text(token)}
    special_ids = _special_ids(tokenizer)
    files: dict[str, dict[str, int]] = {where: special_ids}
    if folder.contains(prefix + "vocab.txt") and BUILDERS.get(kind, (None, ()))[1] == ("vocab.txt",):
        files[folder.where(prefix + "vocab.txt")] = older.read_lines(folder, prefix + "vocab.txt")
    tokens = read_added_tokens(folder, prefix, settings)
    files[tokens.where] = {token["content"]: index for index, token in tokens.stated.items()}
    for file, ids in files.items():
        for token, index in around.items():
            if ids.get(token, index) != index:
                raise CheckpointError(
                    f"{where}: puts {shorten(token)} around a text as id {index}, in {file} it is {ids[token]}"
                )
    if kind in BUILDERS and kind not in WITHOUT_PAIRS and around:
        for name in ("cls_token", "sep_token"):
            content = tokens.named.get(name, {}).get("content")
            if content is not None and special_ids.get(content) not in around.values():
                raise CheckpointError(
                    f"{where}: puts {', '.join(map(shorten, around))} around a text, but in {settings.where} the "
                    f"{name} is {shorten(content)}"
                )


def _special_ids(tokenizer: dict[str, Any]) -> dict[str, int]:
    """token -> id of added tokens, and of the vocabulary's tokens if it is an object."""
    vocabulary = _object(_object(tokenizer.get("model")).get("vocab"))
    ids = {str(token["content"]): token.get("id") for token in _added(tokenizer) if is_text(token.get("content"))}
    return {token: index for token, index in (vocabulary | ids).items() if type(index) is int}


def tokens_by_id(tokenizer: dict[str, Any]) -> dict[int, str]:
    """id -> token of a tokenizer.json, with added tokens."""
    vocabulary = _object(tokenizer.get("model")).get("vocab")
    entries = vocabulary if isinstance(vocabulary, list) else []
    tokens = {i: str(entry[0]) for i, entry in enumerate(entries) if isinstance(entry, (list, tuple)) and entry}
    return tokens | {index: token for token, index in _special_ids(tokenizer).items()}


def around_text(tokenizer: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(tokens before a text, tokens behind it) that a tokenizer.json adds."""
    match tokenizer.get("post_processor"):
        case {"type": "TemplateProcessing", "single": list(parts)}:
            tokens = [_object(_object(part).get("SpecialToken")).get("id") for part in parts]
            at = tokens.index(None) if None in tokens else len(tokens)
            return tuple(map(str, tokens[:at])), tuple(map(str, tokens[at + 1 :]))
        case {"sep": [str(sep), int()], "cls": [str(cls), int()]}:
            return (cls,), (sep,)
    return (), ()


def unknown_token(tokenizer: dict[str, Any]) -> str:
    """The unknown token of a tokenizer.json; <unk> where it names none."""
    model = _object(tokenizer.get("model"))
    index, token = model.get("unk_id"), model.get("unk_token")
    return str(token) if is_text(token) else tokens_by_id(tokenizer).get(index if type(index) is int else -1, "<unk>")
