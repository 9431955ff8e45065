"""Gemma 2 and 3 (Gemma Team 2024, 2025): norms around each sublayer, local layers, capped scores and logits."""

from dataclasses import replace

from fastattn.spec.architecture import LocalSpec, StackSpec
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.decoders.architecture import decoder
from fastattn.weights.huggingface.encoders.architecture import count_layers, local_layers, refuse, rotary
from fastattn.weights.huggingface.encoders.llama import (
    gemma3_stack,
    gemma_scale,
    gemma_stack,
    gemma_table,
    shared_heads,
)


def _cap(config: JsonObject, name: str, usual: float) -> float:
    """A cap; 0, none, where it is null."""
    return config.number(name, 0.0 if name in config.values else usual)


def _gemma2_spec(config: JsonObject) -> StackSpec:
    refuse(config, use_bidirectional_attention=False)
    layers, softcap = count_layers(config), _cap(config, "attn_logit_softcapping", 50.0)
    attention = shared_heads(config, 4, 256, 8, query_scale=gemma_scale(config), softcap=softcap)
    sliding = local_layers(config, layers, lambda i: i % 2 == 0)
    local = LocalSpec(sliding, before=config.integer("sliding_window", 4096, minimum=1) - 1, after=0)
    stack = gemma_stack(config, attention, rotary(config, attention.head_width, 10_000.0), local)
    return replace(stack, output_cap=_cap(config, "final_logit_softcapping", 30.0))


GEMMA2 = decoder(_gemma2_spec, gemma_table, tied=True)


def _gemma3_spec(config: JsonObject) -> StackSpec:
    refuse(config, use_bidirectional_attention=False)
    # whose class with images leaves the cap out
    caps = (config.values.get("architectures") or [""])[0] != "Gemma3ForConditionalGeneration"
    cap = _cap(config, "final_logit_softcapping", 0.0) if caps else 0.0
    return replace(gemma3_stack(config), causal=False, output_cap=cap)


# Of a model that sees images too, the text's part.
GEMMA3 = decoder(
    _gemma3_spec,
    gemma_table,
    tied=True,
    prefixes=("model.", "language_model.", "model."),
    ignored=("vision_tower.", "multi_modal_projector."),
)
