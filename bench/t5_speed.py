"""T5-base's shape with random weights: its folder, what CTranslate2 makes of it, and the three engines over it."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import ctranslate2
import torch
import transformers
from ctranslate2.converters import TransformersConverter

from fastattn import Translator

ROWS = 32_128
SPECIAL = ("<pad>", "</s>", "<unk>")
WORDS = [*SPECIAL, *(f"\u2581w{i}" for i in range(len(SPECIAL), ROWS))]
BASE = {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12, "feed_forward_proj": "relu"}
# source ids without the end, beams, tokens of each translation
Run = Callable[[Sequence[list[int]], int, int], object]


def write_model(folder: Path) -> Path:
    """Write the folders ``model``, ``float32`` and ``int8`` there."""
    transformers.utils.logging.set_verbosity_error()
    torch.manual_seed(0)
    config = transformers.T5Config(vocab_size=ROWS, decoder_start_token_id=0, **BASE)
    transformers.T5ForConditionalGeneration(config).save_pretrained(folder / "model")
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    pieces = [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}]
    end = {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {"special": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "added_tokens": [{"id": i, "content": token, **flags} for i, token in enumerate(SPECIAL)],
        "pre_tokenizer": metaspace, "decoder": metaspace,
        "post_processor": {"type": "TemplateProcessing", "single": pieces, "pair": pieces, "special_tokens": end},
        "model": {
            "type": "Unigram", "unk_id": 2, "byte_fallback": False,
            "vocab": [[word, -1e-3 * (i + 1)] for i, word in enumerate(WORDS)],
        },
    }  # fmt: skip
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "pad_token": "<pad>"}
    (folder / "model" / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "model" / "tokenizer_config.json").write_text(json.dumps(settings | {"eos_token": "</s>"}))
    for precision in ("float32", "int8"):
        TransformersConverter(str(folder / "model")).convert(str(folder / precision), quantization=precision)
    return folder


def engines(folder: Path, threads: int, precisions: Sequence[str]) -> dict[str, Run]:
    """The engines by name and precision; transformers is in float32."""
    made: dict[str, Run] = {"transformers": _transformers(folder / "model")}
    for precision in precisions:
        made[f"fastattn {precision}"] = _ours(Translator(folder / "model", precision, threads))
        theirs = ctranslate2.Translator(str(folder / precision), intra_threads=threads, compute_type=precision)
        made[f"CTranslate2 {precision}"] = _ctranslate2(theirs)
    return made


def _words(ids: Sequence[int]) -> list[str]:
    return [WORDS[index] for index in ids]


def _ours(translator: Translator) -> Run:
    def run(sources: Sequence[list[int]], beams: int, tokens: int) -> object:
        lengths = {"min_decoding_length": tokens, "max_decoding_length": tokens}
        return translator.translate_tokens(map(_words, sources), beam_size=beams, **lengths)

    return run


def _ctranslate2(translator: ctranslate2.Translator) -> Run:
    def run(sources: Sequence[list[int]], beams: int, tokens: int) -> object:
        lengths = {"min_decoding_length": tokens, "max_decoding_length": tokens}
        return translator.translate_batch([[*_words(ids), "</s>"] for ids in sources], beam_size=beams, **lengths)

    return run


def _transformers(folder: Path) -> Run:
    model = transformers.T5ForConditionalGeneration.from_pretrained(folder).eval()

    def run(sources: Sequence[list[int]], beams: int, tokens: int) -> object:
        longest = max(map(len, sources)) + 1
        ids = torch.tensor([[*row, 1] + [0] * (longest - 1 - len(row)) for row in sources])
        with torch.inference_mode():
            return model.generate(
                input_ids=ids, attention_mask=(ids != 0).long(), num_beams=beams, do_sample=False,
                min_new_tokens=tokens, max_new_tokens=tokens,
            )  # fmt: skip

    return run
