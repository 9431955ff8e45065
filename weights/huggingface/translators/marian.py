"""MarianMT models in Hugging Face directories: config.json, vocab.json and .spm files."""

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import ModelSpec, NormSpec, PositionSpec
from fastattn.spec.text_spec import TranslationText
from fastattn.text.languages import language_tokens
from fastattn.weights.containers.json_file import JsonObject, read_optional, shorten
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.translators.architecture import (
    HEAD,
    SHARED,
    SOURCE,
    TABLE,
    TARGET,
    TranslatorArchitecture,
    bart_stack,
    count_tokens,
)
from fastattn.weights.huggingface.vocabulary_files import read_ids

# Flags of config.json -> the only value for this architecture; early configs were BART's.
FLAGS = {
    "is_encoder_decoder": True,
    "is_decoder": False,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
}


def _spec(config: JsonObject) -> ModelSpec:
    problems = [
        f"{name} {str(not value).lower()}" for name, value in FLAGS.items() if config.boolean(name, value) != value
    ]
    if problems:
        raise CheckpointError(f"{config.where}: not supported: {'; '.join(problems)}")
    source = target = count_tokens(config)
    if not config.boolean("share_encoder_decoder_embeddings", True):
        target = count_tokens(config, "decoder_vocab_size", source)
    norms = NormSpec(before=False, final=False)
    positions = PositionSpec("table", limit=config.integer("max_position_embeddings", minimum=1))
    stacks = (
        bart_stack(config, name, norms, positions, rows) for name, rows in (("encoder", source), ("decoder", target))
    )
    return ModelSpec("encoder-decoder", *stacks)


def _tied(config: JsonObject) -> tuple[str, ...]:
    shared, tied = (config.boolean(f"{name}_embeddings", True) for name in ("share_encoder_decoder", "tie_word"))
    return (*((SHARED,) * shared), TARGET, *((SOURCE,) * shared), *((HEAD,) * tied))


def _never(decoding: JsonObject, spec: ModelSpec) -> list[int]:
    """The padding token where it is no end token: those who made the models search without it."""
    end, padding = decoding.integer("eos_token_id"), decoding.integer("pad_token_id")
    rows = spec.stacks["decoder"].vocabulary
    if padding >= rows:
        raise decoding.error("pad_token_id", f"an id below {rows}", padding)
    return [] if padding == end else [padding]


def _text(folder: Folder, config: JsonObject, decoding: JsonObject, spec: ModelSpec) -> TranslationText:
    """The text as in MarianTokenizer: pieces of the .spm files looked up in the vocabularies, then the end token.

    Raises CheckpointError if the ids of ``decoding`` and the vocabularies disagree.
    """
    encoder, decoder = spec.stacks.values()
    settings = read_optional(folder, "tokenizer_config.json")
    unk, end = _token(settings, "unk_token", "<unk>"), _token(settings, "eos_token", "</s>")
    source = _read_vocabulary(folder, "vocab.json", encoder.vocabulary)
    target, target_name = source, "vocab.json"
    if settings.boolean("separate_vocabs", folder.contains("target_vocab.json")):
        target_name = "target_vocab.json"
    if target_name != "vocab.json" or decoder.vocabulary != encoder.vocabulary:
        target = _read_vocabulary(folder, target_name, decoder.vocabulary)
    for name, tokens in (("vocab.json", source), (target_name, target)):
        lacking = [token for token in (unk, end) if token not in tokens]
        if lacking:
            raise CheckpointError(f"{folder.where(name)}: lacks {', '.join(map(shorten, lacking))}")
    end_id = decoding.integer("eos_token_id")
    if target.index(end) != end_id:
        raise decoding.error("eos_token_id", f"{target.index(end)}, the id of {shorten(end)} in {target_name}", end_id)
    start_id = decoding.integer("decoder_start_token_id", decoding.integer("pad_token_id"))
    if start_id >= len(target) or not target[start_id]:
        raise decoding.error("decoder_start_token_id", f"the id of a token in {target_name}", start_id)
    told = language_tokens([token for token in source if token.startswith(">>")])  # of several targets
    return TranslationText(
        source_vocabulary=source,
        target_vocabulary=target,
        unk_token=unk,
        eos_token=end,
        decoder_start_token=target[start_id],
        add_source_eos=True,
        source_model=bytes(folder.read("source.spm")),
        target_model=bytes(folder.read("target.spm")),
        source_language=settings.string("source_lang", ""),
        target_language="" if told else settings.string("target_lang", ""),
        languages=told,
    )


def _token(config: JsonObject, name: str, default: str) -> str:
    """A special token: a string, or an object with flags and its content."""
    value = config.values.get(name)
    return config.nested(name).string("content") if isinstance(value, dict) else config.string(name, default)


def _read_vocabulary(folder: Folder, name: str, rows: int) -> tuple[str, ...]:
    """Tokens by id; "" for an id without a token, as embeddings may have spare rows."""
    tokens = read_ids(folder, name, rows)
    return tuple(tokens.get(index, "") for index in range(rows))


MARIAN = TranslatorArchitecture(
    ("MarianMTModel", "MarianModel"), _spec, lambda config, spec: TABLE, _text, _tied, never=_never
)
