"""The text of a CTranslate2 directory: vocabularies, special tokens, and tokenizer files in it."""

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import ModelSpec, StackSpec
from fastattn.spec.text_spec import EncoderText, TranslationText
from fastattn.weights.containers.json_file import JsonObject, read_json, read_object, shorten
from fastattn.weights.ctranslate2.spec import Attributes
from fastattn.weights.folder import Folder

# Names that converters give to sentencepiece models next to model.bin: (source, target).
SENTENCEPIECE_FILES = (
    ("source.spm", "target.spm"),
    ("sentencepiece.model", "sentencepiece.model"),
    ("sentencepiece.bpe.model", "sentencepiece.bpe.model"),
)


def translation_text(
    folder: Folder, prefix: str, attributes: Attributes, config: JsonObject, version: int, spec: ModelSpec
) -> TranslationText:
    """The text; special tokens are in config.json since binary version 6, before in the model's attributes."""
    if version >= 6:
        tokens = {name: config.string(name) for name in ("unk_token", "bos_token", "eos_token")}
        bos, eos = config.boolean("add_source_bos", False), config.boolean("add_source_eos", False)
        start = config.string("decoder_start_token") if config.has("decoder_start_token") else None
    else:
        defaults = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
        tokens = {name: attributes.text(name, default) for name, default in defaults.items()}
        bos, eos = attributes.flag("with_source_bos", False), attributes.flag("with_source_eos", False)
        start = tokens["bos_token"] if attributes.flag("with_target_bos", True) else tokens["eos_token"]
        if attributes.flag("user_decoder_start_tokens", False):
            start = None
    source, target = _read_vocabularies(folder, prefix, tokens["unk_token"], spec)
    # The start token may be missing: CTranslate2 then uses <unk>'s id, which a model that starts from a zero
    # embedding never looks up.
    if tokens["eos_token"] not in target:
        raise CheckpointError(f"{folder.where(prefix)}: the target vocabulary lacks {shorten(tokens['eos_token'])}")
    models: list[bytes | None] = [None, None]
    for pair in SENTENCEPIECE_FILES:
        if all(folder.contains(prefix + name) for name in pair):
            models = [bytes(folder.read(prefix + name)) for name in pair]
            break
    return TranslationText(
        source_vocabulary=source,
        target_vocabulary=target,
        unk_token=tokens["unk_token"],
        bos_token=tokens["bos_token"],
        eos_token=tokens["eos_token"],
        decoder_start_token=start,
        add_source_bos=bos,
        add_source_eos=eos,
        source_model=models[0],
        target_model=models[1],
        vocabulary_map=bytes(folder.read(prefix + "vmap.txt")) if folder.contains(prefix + "vmap.txt") else None,
    )


def encoder_text(folder: Folder, prefix: str, spec: StackSpec) -> EncoderText:
    """The text; its tokenizer must have been copied next to the model: a vocabulary alone is not enough."""
    if not folder.contains(prefix + "tokenizer.json"):
        raise CheckpointError(
            f"{folder.where(prefix + 'tokenizer.json')}: missing; copy the original model's tokenizer.json there"
        )
    longest = spec.positions.limit or 1 << 30
    if folder.contains(prefix + "tokenizer_config.json"):
        stated = read_object(folder, prefix + "tokenizer_config.json").integer("model_max_length", longest, minimum=1)
        longest = min(longest, stated)
    return EncoderText(tokenizer=bytes(folder.read(prefix + "tokenizer.json")), max_length=longest)


def _read_vocabularies(
    folder: Folder, prefix: str, unk_token: str, spec: ModelSpec
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(source tokens, target tokens), one for each row of their embeddings."""
    assert spec.encoder is not None and spec.decoder is not None
    names: tuple[str, str] = ("source_vocabulary", "target_vocabulary")
    if _find(folder, prefix + "shared_vocabulary"):
        names = ("shared_vocabulary", "shared_vocabulary")
    elif not _find(folder, prefix + "source_vocabulary") and _find(folder, prefix + "source_1_vocabulary"):
        names = ("source_1_vocabulary", "target_vocabulary")
    source = _read_vocabulary(folder, prefix + names[0], unk_token)
    target = source if names[0] == names[1] else _read_vocabulary(folder, prefix + names[1], unk_token)
    for name, tokens, rows in (
        (names[0], source, spec.encoder.vocabulary),
        (names[1], target, spec.decoder.vocabulary),
    ):
        if len(tokens) != rows:
            raise CheckpointError(
                f"{folder.where(prefix + name)}: the embedding has {rows} rows, the vocabulary {len(tokens)} tokens"
                f" ({shorten(unk_token)} included)"
            )
    return source, target


def _read_vocabulary(folder: Folder, name: str, unk_token: str) -> tuple[str, ...]:
    file = _find(folder, name)
    if file is None:
        raise CheckpointError(f"{folder.where(name)}.json (or .txt, or shared_vocabulary): no such file")
    tokens = _read_tokens(folder, file)
    return tuple(tokens) if unk_token in tokens else (*tokens, unk_token)


def _find(folder: Folder, name: str) -> str | None:
    return next((name + ending for ending in (".json", ".txt") if folder.contains(name + ending)), None)


def _read_tokens(folder: Folder, name: str) -> list[str]:
    if name.endswith(".json"):
        tokens = read_json(folder, name)
        if not isinstance(tokens, list) or not _are_texts(tokens):
            raise CheckpointError(f"{folder.where(name)}: should hold a list of strings")
        return tokens
    try:
        lines = bytes(folder.read(name)).decode().split("\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{folder.where(name)}: not UTF-8 at byte {error.start}") from None
    if not lines[-1]:
        lines.pop()
    # A token may end in a carriage return: these are line ends only if every line has one.
    if lines and all(line.endswith("\r") for line in lines):
        lines = [line[:-1] for line in lines]
    return lines


def _are_texts(values: list) -> bool:
    """``is_text`` for all values, fast for tens of thousands."""
    try:
        return "".join(values).encode() is not None
    except (TypeError, UnicodeEncodeError):
        return False
