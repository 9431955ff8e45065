"""BART, mBART and mBART-50, and Pegasus in Hugging Face directories (Lewis 2020, Liu 2020, Tang 2021, Zhang 2020)."""

from collections.abc import Callable

from fastattn.spec.architecture import ModelSpec, NormSpec, PositionSpec
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.encoders.architecture import fixed
from fastattn.weights.huggingface.translators.architecture import TABLE, TranslatorArchitecture, bart_stack, tied
from fastattn.weights.huggingface.translators.text import tokenizer_text, translator_text
from fastattn.weights.tensor_mapping import sources

# Learned positions are numbered from 2, as fairseq numbers them behind a padding token's 1.
LEARNED = TABLE | {"STACK.positions": sources("STACK.embed_positions.weight", skip=2)}


def _spec(norms: NormSpec) -> Callable[[JsonObject], ModelSpec]:
    def spec(config: JsonObject) -> ModelSpec:
        positions = PositionSpec("table", limit=config.integer("max_position_embeddings", minimum=1))
        return ModelSpec("encoder-decoder", *(bart_stack(config, name, norms, positions) for name in STACKS))

    return spec


STACKS = ("encoder", "decoder")
BART = TranslatorArchitecture(
    ("BartForConditionalGeneration", "BartModel"),
    _spec(NormSpec(before=False, final=False, embedding=True)),
    fixed(LEARNED),
    tokenizer_text,
    tied,
)
MBART = TranslatorArchitecture(
    ("MBartForConditionalGeneration", "MBartModel"),
    _spec(NormSpec(embedding=True)),
    fixed(LEARNED),
    translator_text,
    tied,
)
PEGASUS = TranslatorArchitecture(
    ("PegasusForConditionalGeneration", "PegasusModel"), _spec(NormSpec()), fixed(TABLE), tokenizer_text, tied
)
