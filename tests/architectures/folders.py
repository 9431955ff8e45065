"""Writes a Hugging Face directory with a tiny tokenizer around drawn weights; needs no transformers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from fastattn.weights.huggingface.decoders import DECODERS
from fastattn.weights.huggingface.encoders import ENCODERS
from tests.architectures.case import VOCABULARY
from tests.weights.containers.safetensors_writer import safetensors_bytes, write_json

# Special tokens by id, and the texts' and pairs' templates.
BERT_LIKE = (("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), "[CLS] $A [SEP]", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
ROBERTA_LIKE = (("<s>", "<pad>", "</s>", "<unk>", "<mask>"), "<s> $A </s>", "<s> $A </s> </s> $B </s>")
T5_LIKE = (("<pad>", "</s>", "<unk>", "<s>", "<mask>"), "$A </s>", "$A </s> $B </s>")
GEMMA_LIKE = (("<pad>", "<eos>", "<bos>", "<unk>", "<mask>"), "<bos> $A <eos>", "<bos> $A <eos> $B <eos>")
DECODER_LIKE = (("<pad>", "<s>", "</s>", "<unk>", "<c>"), "<s> $A", "<s> $A $B")
CLIP_LIKE = (("<pad>", "<s>", "<unk>", "<c>", "</s>"), "<s> $A </s>", "<s> $A </s> $B </s>")
QWEN_LIKE = (("<|endoftext|>", "<unk>", "<a>", "<b>", "<c>"), "$A <|endoftext|>", "$A $B <|endoftext|>")
TOKENIZERS = {
    "roberta": ROBERTA_LIKE, "xlm-roberta": ROBERTA_LIKE, "camembert": ROBERTA_LIKE, "mpnet": ROBERTA_LIKE,
    "clip": CLIP_LIKE, "gemma3_text": GEMMA_LIKE, "qwen2": QWEN_LIKE, "qwen3": QWEN_LIKE, "t5": T5_LIKE,
    "mt5": T5_LIKE, "umt5": T5_LIKE,
    **dict.fromkeys(sorted(DECODERS.keys() - ENCODERS.keys()), DECODER_LIKE),
}  # fmt: skip


def tokenizer_json(model_type: str, vocabulary: int = VOCABULARY) -> str:
    """A tokenizer.json of words w5, w6, ... with the architecture's special tokens around them."""
    special, single, pair = TOKENIZERS.get(model_type, BERT_LIKE)
    words = [*special, *(f"w{i}" for i in range(len(special), vocabulary))]
    unknown = next(token for token in special if "unk" in token.lower())
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(token, words.index(token)) for token in special]
    )
    return str(tokenizer.to_str())


def write_tokenizer(folder: Path, model_type: str, vocabulary: int = VOCABULARY) -> None:
    (folder / "tokenizer.json").write_text(tokenizer_json(model_type, vocabulary), encoding="utf-8")


def write_folder(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Path:
    """config.json, model.safetensors and tokenizer.json."""
    write_json(folder / "config.json", dict(config))
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    write_tokenizer(folder, str(config["model_type"]), int(config["vocab_size"]))
    return folder
