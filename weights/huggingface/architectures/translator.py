"""The description of an encoder-decoder's architecture, and what architectures share: ties, how text becomes ids."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import ModelSpec
from fastattn.spec.text_spec import TranslationText
from fastattn.text.languages import language_tokens
from fastattn.weights.containers.json_file import JsonObject, read_optional, shorten
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.tokenizer import (
    FILE,
    read_tokenizer,
    tokenizer_class,
    tokens_around_text,
    tokens_by_id,
    unknown_token,
)
from fastattn.weights.huggingface.tokenizer_files import CONFIG
from fastattn.weights.tensor_mapping import TensorSources

# The most rows of a position table that is computed, not stored: no tensor limits their number.
MOST_POSITIONS = 1 << 13
# The most tokens of a vocabulary, which is read before the weights, whose rows would limit the number.
MOST_TOKENS = 1 << 22


@dataclass(frozen=True)
class TranslatorArchitecture:
    """An encoder-decoder in a Hugging Face directory."""

    classes: tuple[str, ...]  # of ``architectures``; a config.json without names has the first
    # (config.json) -> the stacks; raises CheckpointError for settings that are not supported
    spec: Callable[[JsonObject], ModelSpec]
    # (config.json, the stacks) -> the sources of the model's tensors, whose names have no leading ``model.``
    table: Callable[[JsonObject, ModelSpec], Mapping[str, TensorSources]]
    # (the folder, config.json, the special ids of generation, the stacks) -> the text; weights may not be there yet
    text: Callable[[Folder, JsonObject, JsonObject, ModelSpec], TranslationText]
    # (config.json) -> names of one tied tensor, which the file may have under any of these names. As in transformers, a
    # tensor that the file has under its own name stays separate
    tied_names: Callable[[JsonObject], tuple[str, ...]]
    # (the special ids of generation, the stacks) -> ids that are never produced. These ids and the ids that settings
    # suppress are removed from the output layer, so that all other ids share the whole probability. None: the search
    # leaves out the ids that settings suppress, as in transformers
    suppressed_ids: Callable[[JsonObject, ModelSpec], list[int]] | None = None

    def names_class(self, config: JsonObject) -> bool:
        """Whether config.json names a class that is read here, or none."""
        names = config.values.get("architectures") or [self.classes[0]]
        return isinstance(names, list) and any(name in self.classes for name in names)


SHARED, HEAD = "shared.weight", "lm_head.weight"
SOURCE, TARGET = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"


def count_tokens(config: JsonObject, name: str = "vocab_size", default: int | None = None) -> int:
    tokens = config.integer(name, default, minimum=1)
    if tokens > MOST_TOKENS:
        raise config.error(name, f"at most {MOST_TOKENS}", tokens)
    return tokens


def embedding_names(config: JsonObject) -> tuple[str, ...]:
    """The names of the embeddings, which are one tensor, and of the output layer unless config.json says otherwise."""
    return (SHARED, TARGET, SOURCE, *((HEAD,) * config.boolean("tie_word_embeddings", True)))


@dataclass(frozen=True)
class Tokens:
    """A vocabulary, and what its tokenizer adds to texts."""

    by_id: dict[int, str]  # id -> token
    unknown_token: str  # the token that stands for pieces that the vocabulary lacks
    where: str  # the vocabulary's file in errors
    before: tuple[str, ...] = ()  # tokens that the tokenizer adds before a text
    after: tuple[str, ...] = ()  # tokens that the tokenizer adds behind a text
    tokenizer: bytes | None = None  # tokenizer.json


def _read_tokens(folder: Folder, config: JsonObject, spec: ModelSpec) -> Tokens:
    rows = spec.stacks["encoder"].vocabulary
    tokenizer, data = read_tokenizer(folder, "", config, read_optional(folder, CONFIG), rows)
    by_id = {index: token for index, token in tokens_by_id(tokenizer).items() if index < rows}
    before, after = tokens_around_text(tokenizer)
    return Tokens(by_id, unknown_token(tokenizer), folder.where(FILE), before, after, data)


def tokenizer_text(
    folder: Folder, config: JsonObject, decoding: JsonObject, spec: ModelSpec, tokens: Tokens | None = None
) -> TranslationText:
    """The text of a model without languages; CheckpointError where the ids of ``decoding`` and the tokens disagree.

    tokens  the vocabulary; None: that of the folder's tokenizer
    """
    tokens = tokens or _read_tokens(folder, config, spec)
    vocabulary = tuple(tokens.by_id.get(index, "") for index in range(spec.stacks["encoder"].vocabulary))
    end_token = _read_token(decoding, "eos_token_id", vocabulary, tokens.where)
    start_token = _read_token(decoding, "decoder_start_token_id", vocabulary, tokens.where)
    if len(tokens.before) > 1 or tokens.after not in ((), (end_token,)):
        pattern = " ".join((*tokens.before, "...", *tokens.after))
        raise CheckpointError(f"{tokens.where}: should put {shorten(end_token)} behind a text, puts {shorten(pattern)}")
    return TranslationText(
        source_vocabulary=vocabulary,
        target_vocabulary=vocabulary,
        unk_token=tokens.unknown_token,
        bos_token=tokens.before[0] if tokens.before else "<s>",
        eos_token=end_token,
        decoder_start_token=start_token,
        add_source_bos=bool(tokens.before),
        add_source_eos=bool(tokens.after),
        tokenizer=tokens.tokenizer,
    )


def translator_text(
    folder: Folder, config: JsonObject, decoding: JsonObject, spec: ModelSpec, tokens: Tokens | None = None
) -> TranslationText:
    """The text of a multilingual model; CheckpointError where no token is a language's, and as ``tokenizer_text``.

    A target begins with its language: as the start token, where that is a language or missing (mBART), else after it.
    """
    settings = read_optional(folder, CONFIG)
    tokens = replace(tokens or _read_tokens(folder, config, spec), before=(), after=())
    languages = language_tokens(tuple(tokens.by_id.values()))
    if languages is None or not languages.target:
        raise CheckpointError(f"{tokens.where}: has no tokens of languages, such as __en__, eng_Latn and en_XX")
    codes = {token: code for code, token in languages.tokens.items()}
    start_token = tokens.by_id.get(decoding.integer("decoder_start_token_id", -1, minimum=-1), "")
    if not start_token or start_token in codes:
        languages = replace(languages, target="start")
        start_id = {"decoder_start_token_id": decoding.integer("eos_token_id")}
        decoding = JsonObject(decoding.values | start_id, decoding.where)
    ends_with_language = settings.boolean("legacy_behaviour", False)
    ends_with_language = ends_with_language or tokenizer_class(config, settings) == "MBartTokenizer"
    text = tokenizer_text(folder, config, decoding, spec, tokens)
    return replace(
        text,
        decoder_start_token=None if languages.target == "start" else text.decoder_start_token,
        add_source_eos=not ends_with_language,
        source_language=settings.string("src_lang", ""),
        target_language=settings.string("tgt_lang", "") or codes.get(start_token, ""),
        languages=replace(languages, source="after" if ends_with_language else "before"),
        single_sentences=True,
    )


def _read_token(decoding: JsonObject, name: str, vocabulary: tuple[str, ...], where: str) -> str:
    index = decoding.integer(name)
    if index >= len(vocabulary) or not vocabulary[index]:
        raise decoding.error(name, f"the id of a token in {where}", index)
    return vocabulary[index]
