"""M2M100 (Fan 2021) and NLLB (NLLB Team 2022) in Hugging Face directories."""

from dataclasses import replace

from fastattn.spec.architecture import ModelSpec, NormSpec, PositionSpec
from fastattn.spec.text_spec import TranslationText
from fastattn.weights.containers.json_file import JsonObject, read_optional
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.tokenizer import FILE
from fastattn.weights.huggingface.translators.architecture import (
    TABLE,
    TranslatorArchitecture,
    bart_stack,
    count_tokens,
    tied,
)
from fastattn.weights.huggingface.translators.text import Tokens, translator_text
from fastattn.weights.huggingface.vocabulary_files import CONFIG, read_ids

VOCABULARY, PIECES = "vocab.json", "sentencepiece.bpe.model"
# M2M100's languages in the order of their ids, which follow the vocabulary's, by what a tokenizer calls the lists.
LANGUAGES = {
    "m2m100": (
        "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu "
        "hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt "
        "ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu"
    ),
    "wmt21": "en ha is ja cs ru zh de",
}


def _spec(config: JsonObject) -> ModelSpec:
    config = JsonObject({"activation_function": "relu", "scale_embedding": True} | config.values, config.where)
    limit, padding = config.integer("max_position_embeddings", minimum=1), config.integer("pad_token_id", 1)
    if padding >= count_tokens(config):
        raise config.error("pad_token_id", "an id below vocab_size", padding)
    positions = PositionSpec("sinusoid", limit=limit, start=padding + 1)
    stacks = (bart_stack(config, name, NormSpec(), positions) for name in ("encoder", "decoder"))
    return ModelSpec("encoder-decoder", *(replace(stack, projection_bias=False) for stack in stacks))


def _text(folder: Folder, config: JsonObject, decoding: JsonObject, spec: ModelSpec) -> TranslationText:
    """NLLB's tokenizer.json, or the pieces of M2M100's sentencepiece model, looked up in its vocab.json."""
    if folder.contains(FILE) or not folder.contains(VOCABULARY):
        return translator_text(folder, config, decoding, spec)
    settings, rows = read_optional(folder, CONFIG), spec.stacks["encoder"].vocabulary
    known = read_ids(folder, VOCABULARY, rows)
    codes = LANGUAGES[settings.choice("language_codes", LANGUAGES, "m2m100")].split()
    first = max(known, default=-1) + 1
    languages = {first + i: f"__{code}__" for i, code in enumerate(codes) if first + i < rows}
    tokens = Tokens(languages | known, "<unk>", folder.where(VOCABULARY))
    text = translator_text(folder, config, decoding, spec, tokens)
    pieces = bytes(folder.read(PIECES))
    return replace(text, source_model=pieces, target_model=pieces)


M2M100 = TranslatorArchitecture(
    ("M2M100ForConditionalGeneration", "M2M100Model"), _spec, lambda config, spec: TABLE, _text, tied
)
