"""Small random language models in memory, with a tokenizer of bytes and a few merges."""

from dataclasses import replace
from functools import cache

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from fastattn.generation.generator import Generator
from fastattn.spec.architecture import AttentionSpec, FeedForwardSpec, ModelSpec, NormSpec, PositionSpec, StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.tensors import check_tensors, tensor_shapes
from fastattn.spec.text_spec import DecodingSettings, GeneratorText

MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("a", "n"), ("Ġ", "an"), ("Ã", "©"), ("n", "d")]
SPECIAL = ("<s>", "</s>")


@cache
def tokenizer_json(adds_start: bool = True) -> bytes:
    """A tokenizer.json: byte-level BPE, as GPT-2 and Llama 3 have it; texts begin with <s>."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*SPECIAL, *letters, *(one + other for one, other in MERGES)]
    tokenizer = Tokenizer(models.BPE({token: n for n, token in enumerate(tokens)}, MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    if adds_start:
        tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    return tokenizer.to_str().encode()


VOCABULARY = len(SPECIAL) + 256 + len(MERGES)
START, END = 0, 1
SPEC = StackSpec(
    layers=2, width=16, vocabulary=VOCABULARY, attention=AttentionSpec(heads=4, key_heads=2, head_width=6),
    feed_forward=FeedForwardSpec(inner_width=24, activation="swish", gated=True), norms=NormSpec("rms"),
    positions=PositionSpec("rotary"), biases=False,
)  # fmt: skip


def checkpoint(
    seed: int = 1,
    stack: StackSpec = SPEC,
    max_length: int = 0,
    adds_start: bool = True,
    sharp: float = 3,
    end_ids: tuple[int, ...] = (END,),
    **settings: object,
) -> Checkpoint:
    """A checkpoint; ``settings`` are its own DecodingSettings, ``sharp``: how far apart its logits are."""
    rng, spec = np.random.default_rng(seed), ModelSpec("decoder", decoder=stack)
    tensors = {}
    for name, shape in tensor_shapes(spec).items():
        drawn = 1 + 0.1 * rng.normal(size=shape) if "norm" in name else rng.normal(0, shape[-1] ** -0.5, shape)
        tensors[name] = (drawn * (sharp if name == "decoder.projection.weight" else 1)).astype(np.float32)
    check_tensors(spec, tensors, "memory")
    text = GeneratorText(tokenizer_json(adds_start), max_length, end_ids, decoding=DecodingSettings(**settings))
    return Checkpoint(spec, tensors, text)


def make(precision: str = "float32", threads: int | None = None, ops: object = None, **given: object) -> Generator:
    return Generator.from_checkpoint(checkpoint(**given), precision, threads, ops)


def with_stack(**changes: object) -> StackSpec:
    return replace(SPEC, **changes)
