"""Write reranker.npz: a small random Qwen 3 in the place of a Qwen3-Reranker, and scores by its card's code."""

import json
import tempfile
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.goldens.writing import write_arrays

MERGES = [("y", "e"), ("ye", "s"), ("n", "o"), ("t", "h"), ("th", "e"), ("Ġ", "the")]
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
SIZES = {
    "hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 6, "max_position_embeddings": 400, "tie_word_embeddings": False,
    "initializer_range": 0.4,
}  # fmt: skip
PAIRS = [
    ["What is the capital of China?", "The capital of China is Beijing."], ["Explain the é", ""],
    ["", "Gravity is a force."], ["the", "longer than the context " * 30],
]  # fmt: skip
INSTRUCTIONS = ["Given a web search query, retrieve relevant passages that answer the query", "Find the code"]
PREFIX = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def make_tokenizer() -> Tokenizer:
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(one + other for one, other in MERGES)]
    tokenizer = Tokenizer(models.BPE({token: n for n, token in enumerate(tokens)}, MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in ("<think>", "</think>")])
    return tokenizer


if __name__ == "__main__":
    import torch
    import transformers
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(5)
    made = make_tokenizer()
    ends = {"eos_token_id": made.token_to_id("<|im_end|>"), "pad_token_id": made.token_to_id("<|endoftext|>")}
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=made.get_vocab_size(), **SIZES, **ends)).eval().float()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model.save_pretrained(folder)
        made.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
        tokenizer = AutoTokenizer.from_pretrained(folder)
        names = ("config.json", "model.safetensors", "tokenizer.json")
        files = {f"{name}: file": np.frombuffer((folder / name).read_bytes(), np.uint8) for name in names}
    before, after = (tokenizer.encode(text, add_special_tokens=False) for text in (PREFIX, SUFFIX))
    yes, no = map(tokenizer.convert_tokens_to_ids, ("yes", "no"))
    scores = np.zeros((len(INSTRUCTIONS), len(PAIRS)))
    for i, instruction in enumerate(INSTRUCTIONS):
        texts = [f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}" for query, document in PAIRS]
        room = SIZES["max_position_embeddings"] - len(before) - len(after)
        for b, ids in enumerate(tokenizer(texts, truncation="longest_first", max_length=room)["input_ids"]):
            with torch.no_grad():
                logits = model(torch.tensor([before + ids + after])).logits[0, -1]
            scores[i, b] = torch.log_softmax(torch.stack([logits[no], logits[yes]]), 0)[1].exp().item()
    write_arrays("reranker", {"scores": scores, **files}, transformers, torch)
