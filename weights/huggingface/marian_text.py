"""The text of a Hugging Face MarianMT directory: vocab.json, perhaps target_vocab.json, source.spm, target.spm."""

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import ModelSpec
from fastattn.spec.text_spec import TranslationText
from fastattn.weights.containers.json_file import JsonObject, read_optional, shorten
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.vocabulary_files import read_ids


def translation_text(folder: Folder, decoding: JsonObject, spec: ModelSpec) -> TranslationText:
    """The text as in MarianTokenizer: pieces of the .spm files looked up in the vocabularies, then the end token.

    ``decoding`` is the config of generation. Raises CheckpointError if its ids and the vocabularies disagree.
    """
    assert spec.encoder is not None and spec.decoder is not None
    config = read_optional(folder, "tokenizer_config.json")
    unk, end = _token(config, "unk_token", "<unk>"), _token(config, "eos_token", "</s>")
    source = _read_vocabulary(folder, "vocab.json", spec.encoder.vocabulary)
    target, target_name = source, "vocab.json"
    if config.boolean("separate_vocabs", folder.contains("target_vocab.json")):
        target_name = "target_vocab.json"
    if target_name != "vocab.json" or spec.decoder.vocabulary != spec.encoder.vocabulary:
        target = _read_vocabulary(folder, target_name, spec.decoder.vocabulary)
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
    return TranslationText(
        source_vocabulary=source,
        target_vocabulary=target,
        unk_token=unk,
        eos_token=end,
        decoder_start_token=target[start_id],
        add_source_eos=True,
        source_model=bytes(folder.read("source.spm")),
        target_model=bytes(folder.read("target.spm")),
        source_language=config.string("source_lang", ""),
        target_language=config.string("target_lang", ""),
    )


def _token(config: JsonObject, name: str, default: str) -> str:
    """A special token: a string, or an object with flags and its content."""
    value = config.values.get(name)
    return config.nested(name).string("content") if isinstance(value, dict) else config.string(name, default)


def _read_vocabulary(folder: Folder, name: str, rows: int) -> tuple[str, ...]:
    """Tokens by id; "" for an id without a token, as embeddings may have spare rows."""
    tokens = read_ids(folder, name, rows)
    return tuple(tokens.get(index, "") for index in range(rows))
