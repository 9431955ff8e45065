"""Settings of ColBERT, which has a vector for each token, from sentence-transformers, PyLate or ColBERT's authors."""

import dataclasses
import string

from fastattn.errors import CheckpointError
from fastattn.spec.text_spec import EncoderText, MultiVectorText
from fastattn.weights.containers.json_file import JsonObject, is_text, read_object, read_optional, shorten
from fastattn.weights.folder import Folder

# model_type in config_sentence_transformers.json: of PyLate up to version 3, and of sentence-transformers.
PYLATE, MULTI_VECTOR = "ColBERT", "MultiVectorEncoder"
# The class in config.json of the authors' checkpoints, and the name of the projection there.
AUTHORS_CLASS, PROJECTION = "HF_ColBERT", "linear.weight"
METADATA = "artifact.metadata"
# Any of these settings shows that PyLate wrote the file; PyLate expands queries unless do_query_expansion is false.
PYLATE_SETTINGS = tuple(
    "query_length document_length do_query_expansion attend_to_expansion_tokens attend_to_mask_tokens query_prefix "
    "document_prefix skiplist_words".split()
)
QUERY_LENGTH = 32  # where no file has the length
STRATEGIES = ("fixed", "min")  # of query expansion: longer queries are cut, or stay as they are
# PyLate's name of a prefix -> the prompt that begins with that prefix.
PREFIXES = {"query_prefix": "query", "document_prefix": "document"}


def read_lengths(config: JsonObject, text: MultiVectorText) -> MultiVectorText:
    """``text`` with the lengths and the query expansion of the transformer's own settings, where there are any."""
    text = dataclasses.replace(
        text,
        query_length=config.optional_size("query_length") or text.query_length,
        document_length=config.optional_size("document_length") or text.document_length,
    )
    if "query_expansion" not in config.values:
        return text
    if not config.has("query_expansion"):
        return dataclasses.replace(text, expansion=0)
    return _with_expansion(config.nested("query_expansion"), text)


def read_top_config(config: JsonObject, text: EncoderText) -> EncoderText:
    """``text`` with PyLate's prefixes and lengths and the similarity of config_sentence_transformers.json."""
    prompts = dict(text.prompts)
    markers = []
    for name, prompt in PREFIXES.items():
        if name in config.values:
            marker = config.string(name, "")
            markers.append(marker)
            prompts[prompt] = marker + prompts.get(prompt, "").removeprefix(marker)
    settings = MultiVectorText(
        markers=tuple(filter(None, markers)), mean=config.values.get("similarity_fn_name") == "meanmaxsim"
    )
    settings = read_lengths(config, settings)
    if "query_expansion" not in config.values and any(name in config.values for name in PYLATE_SETTINGS):
        if config.boolean("do_query_expansion", True):
            attends = config.boolean("attend_to_expansion_tokens", config.boolean("attend_to_mask_tokens", False))
            length = settings.query_length or QUERY_LENGTH
            settings = dataclasses.replace(settings, query_length=None, expansion=length, expansion_seen=attends)
    if config.string("model_type") == PYLATE:  # PyLate's folders have no modules that mask and normalize
        words = _read_strings(config, "skiplist_words", tuple(string.punctuation))
        settings = dataclasses.replace(settings, skipped=words)
        text = dataclasses.replace(text, normalize=True)
    return dataclasses.replace(text, prompts=prompts, multi_vector=settings)


def read_mask(folder: Folder, prefix: str, text: EncoderText, width: int) -> tuple[EncoderText, int]:
    """``text`` with the tokens that get no vector, from the module MultiVectorMask."""
    config = read_object(folder, prefix + "config.json")
    if config.values.get("keep_only_token_ids"):
        raise config.error("keep_only_token_ids", "null", config.values["keep_only_token_ids"])
    tasks = config.values.get("skiplist_tasks", ["document"])
    tasks = (tasks,) if isinstance(tasks, str) else _read_strings(config, "skiplist_tasks", ("document",))
    settings = dataclasses.replace(
        text.multi_vector or MultiVectorText(), skipped=_read_strings(config, "skiplist_words"), skipped_in=tasks
    )
    return dataclasses.replace(text, multi_vector=settings), width


def is_by_authors(config: JsonObject) -> bool:
    """Whether config.json names the class of the authors' checkpoints."""
    names = config.values.get("architectures")
    return isinstance(names, list) and AUTHORS_CLASS in names


def read_authors_text(folder: Folder, prefix: str, text: EncoderText) -> EncoderText:
    """``text`` with the settings of artifact.metadata or the authors' defaults; does not read the projection."""
    config = read_optional(folder, prefix + METADATA)
    similarity = config.string("similarity", "cosine")
    if similarity not in ("cosine", "l2"):  # both order unit vectors equally
        raise config.error("similarity", "'cosine'", similarity)
    tokens = {"query": ("query_token_id", "[unused0]"), "document": ("doc_token_id", "[unused1]")}
    prompts = {task: f"{config.string(name, default)} " for task, (name, default) in tokens.items()}
    settings = MultiVectorText(
        document_length=config.optional_size("doc_maxlen"),
        expansion=config.integer("query_maxlen", QUERY_LENGTH, minimum=1),
        expansion_seen=config.boolean("attend_to_mask_tokens", False),
        expansion_token=text.mask_token,
        skipped=tuple(string.punctuation) if config.boolean("mask_punctuation", True) else (),
        markers=tuple(prompts.values()),
    )
    return dataclasses.replace(text, prompts=prompts, multi_vector=settings, normalize=True)


def add_expansion_token(text: EncoderText, token_config: JsonObject, where: str) -> EncoderText:
    """``text`` with the token that expands queries, by default the mask token, and the side that gets this token.

    token_config  tokenizer_config.json
    """
    settings = text.multi_vector
    if settings is None or settings.expansion == 0:
        return text
    if not settings.expansion_token and not text.mask_token:
        raise CheckpointError(f"{where}: queries are filled up, but the tokenizer has no mask token")
    side = token_config.choice("padding_side", ("right", "left"), "right")
    if side == "left" and not settings.expansion_cuts:
        raise token_config.error("padding_side", "'right' beside query_expansion's strategy 'min'", side)
    token = settings.expansion_token or text.mask_token
    settings = dataclasses.replace(settings, expansion_token=token, expansion_left=side == "left")
    return dataclasses.replace(text, multi_vector=settings)


def _with_expansion(config: JsonObject, text: MultiVectorText) -> MultiVectorText:
    strategy = config.choice("strategy", STRATEGIES)
    return dataclasses.replace(
        text,
        expansion=config.integer("length", minimum=1),
        expansion_cuts=strategy == "fixed",
        expansion_seen=config.boolean("attend", False),
        expansion_token=config.string("token", ""),
    )


def _read_strings(config: JsonObject, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
    strings = config.values.get(name)
    if strings is None:
        return default
    if not isinstance(strings, list) or not all(map(is_text, strings)):
        raise CheckpointError(f"{config.where}: {name} should be a list of strings, is {shorten(strings)}")
    return tuple(strings)
