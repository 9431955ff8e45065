"""Make tokenizers.npz: what transformers makes of folders without a tokenizer.json, and the folders themselves.

Run where transformers and sentencepiece are installed: python -m tests.goldens.make_tokenizers. The tests need no
transformers. DeBERTa's is its converter's, as weights/huggingface/sentencepiece_files.py says.
"""

import importlib
import io
import json
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import sentencepiece
import tokenizers
import transformers

from tests.goldens.make_text import TEXTS, WORDS, corpus, rules

HERE = Path(__file__).parent
TYPED = [
    "the [CLS] garden[SEP][MASK] [UNK] [PAD] [cls]",
    "the <s> garden</s><mask> <mask> <unk> <pad> <S>",
    "a <extra_id_1> b <new> <NEW>",
    "``quoted'' it's they're 1,000, 2,",
    "Ünïcödé ﬁ ½ Ⅷ İSTANBUL ΑΣ",
    "a\xa0b\u2028c\u3000d",
    "garden\u0301s quiet\u0327",
    "テスト ｶﾞ 한국어 ไทย العربية",
    "x" * 101,
]
SAMPLES = [text if len(text) < 100 else text[:60] for text in TEXTS] + TYPED
SECOND = "A quiet <mask> garden."
CONTROL = ["[CLS]", "[SEP]", "[MASK]"]
UNIGRAM = "text_unigram.model"  # which is another golden
# Name -> (config.json, tokenizer_config.json, further JSON files, the vocabulary).
CASES: dict[str, tuple[dict, dict, dict, str]] = {
    "bert": ({"model_type": "bert"}, {}, {}, "words"),
    "bert cased": (
        {"model_type": "bert"},
        {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False},
        {},
        "words",
    ),
    "distilbert": (
        {"model_type": "distilbert"},
        {"tokenizer_class": "DistilBertTokenizer"},
        {"special_tokens_map.json": {"mask_token": {"content": "[MASK]", "lstrip": True, "normalized": False}}},
        "words",
    ),
    "electra": ({"model_type": "electra"}, {"strip_accents": False}, {"added_tokens.json": {}}, "words"),
    "mpnet": ({"model_type": "mpnet"}, {"model_max_length": 12}, {}, "fairseq words"),
    "roberta": ({"model_type": "roberta"}, {}, {}, "bytes"),
    "roberta prefixed": (
        {"model_type": "roberta"},
        {"add_prefix_space": True, "mask_token": {"__type": "AddedToken", "content": "<mask>", "lstrip": True}},
        {},
        "bytes",
    ),
    "gpt2": ({"model_type": "gpt2"}, {}, {}, "bytes"),
    "gpt2 prefixed": ({"model_type": "gpt2"}, {"add_prefix_space": True, "unk_token": "<unk>"}, {}, "bytes"),
    "qwen2": ({"model_type": "qwen2"}, {"tokenizer_class": "Qwen2Tokenizer"}, {}, "bytes"),
    "qwen3": ({"model_type": "qwen3"}, {"pad_token": "<pad>"}, {}, "bytes"),
    "llama": ({"model_type": "llama"}, {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True}, {}, "llama"),
    "llama legacy": (
        {"model_type": "llama"},
        {"tokenizer_class": "LlamaTokenizer", "legacy": True, "add_bos_token": False, "add_eos_token": True},
        {},
        "llama",
    ),
    "llama bare": (
        {"model_type": "llama"},
        {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": False},
        {},
        "llama",
    ),
    "xlm-roberta": ({"model_type": "xlm-roberta"}, {}, {}, UNIGRAM),
    "camembert": ({"model_type": "camembert"}, {}, {}, UNIGRAM),
    "albert": ({"model_type": "albert"}, {}, {}, "albert"),
    "albert cased": ({"model_type": "albert"}, {"do_lower_case": False, "keep_accents": True}, {}, "albert"),
    "t5": ({"model_type": "t5"}, {"extra_ids": 5}, {}, "t5"),
    "deberta": ({"model_type": "deberta-v2"}, {}, {}, "deberta"),
    "deberta split": ({"model_type": "deberta-v2"}, {"do_lower_case": True, "split_by_punct": True}, {}, "deberta"),
}
SPM = {
    "albert": ("spiece.model", {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": CONTROL}),
    "llama": ("tokenizer.model", {"model_type": "bpe", "byte_fallback": True, "vocab_size": 500}),
    "t5": ("spiece.model", {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}),
    "deberta": (
        "spm.model",
        {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}
        | {"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"},
    ),
}


def word_list(special: list[str], end: list[str]) -> bytes:
    words = sorted({word for words in WORDS.values() for word in words.lower().split()} | set("abcdefghijklmnopqrstu"))
    parts = [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    return "".join(f"{token}\n" for token in [*special, *words, *parts, *".,'A", *end]).encode()


def byte_level() -> dict[str, bytes]:
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer.train_from_iterator(corpus(), vocab_size=400, special_tokens=special, show_progress=False)
    model = json.loads(tokenizer.to_str())["model"]
    vocabulary = model["vocab"] | {"<mask>": len(model["vocab"])}
    merges = "".join(f"{' '.join(merge)}\n" for merge in model["merges"])
    return {"vocab.json": json.dumps(vocabulary).encode(), "merges.txt": f"#version: 0.2\n{merges}".encode()}


def vocabulary_files(kind: str) -> dict[str, bytes]:
    if kind == "words":
        return {"vocab.txt": word_list(["[PAD]", "[UNK]", *CONTROL], [])}
    if kind == "fairseq words":
        return {"vocab.txt": word_list(["<s>", "<pad>", "</s>", "<unk>"], ["[UNK]", "<mask>"])}
    if kind == "bytes":
        return byte_level()
    if kind == UNIGRAM:
        return {"sentencepiece.bpe.model": (HERE / UNIGRAM).read_bytes()}
    name, settings = SPM[kind]
    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "rules.tsv").write_text(rules(), encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus()), model_writer=model, minloglevel=2, num_threads=1,
            character_coverage=1.0, hard_vocab_limit=settings.get("model_type") == "bpe",
            **{"vocab_size": 200, "normalization_rule_tsv": f"{folder}/rules.tsv"} | settings,
        )  # fmt: skip
    return {name: model.getvalue()}


def peer(folder: Path, name: str, settings: dict) -> tokenizers.Tokenizer:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    if not name.startswith("deberta"):
        return tokenizer.backend_tokenizer
    original = SimpleNamespace(
        vocab_file=str(folder / "spm.model"),
        do_lower_case=settings.get("do_lower_case", False),
        split_by_punct=settings.get("split_by_punct", False),
        convert_tokens_to_ids=tokenizer.convert_tokens_to_ids,
    )
    converted = importlib.import_module("transformers.convert_slow_tokenizer").DebertaV2Converter(original).converted()
    converted.add_special_tokens(tokenizer.all_special_tokens)
    return converted


def main() -> None:
    arrays: dict[str, np.ndarray] = {}
    vocabularies = {kind: vocabulary_files(kind) for *_, kind in CASES.values()}
    new = vocabularies["words"]["vocab.txt"].count(b"\n")
    CASES["electra"][2]["added_tokens.json"] = {"<new>": new}
    for name, (config, settings, further, kind) in CASES.items():
        described = {"config.json": config, "tokenizer_config.json": settings} | further
        files = vocabularies[kind] | {file: json.dumps(content).encode() for file, content in described.items()}
        with tempfile.TemporaryDirectory() as folder:
            for file, content in files.items():
                (Path(folder) / file).write_bytes(content)
            tokenizer = peer(Path(folder), name, settings)
        single = [tokenizer.encode(text) for text in SAMPLES]
        pairs = [tokenizer.encode(text, SECOND) for text in SAMPLES]
        arrays |= {
            f"{name}/lengths": np.array([[len(one), len(two)] for one, two in zip(single, pairs)], np.int16),
            f"{name}/ids": np.array([index for one in single for index in one.ids], np.int16),
            f"{name}/offsets": np.array([place for one in single for place in one.offsets], np.int16),
            f"{name}/pair_ids": np.array([index for one in pairs for index in one.ids], np.int16),
            f"{name}/pair_types": np.array([index for one in pairs for index in one.type_ids], np.int16),
        }
    for kind, files in vocabularies.items():
        if kind != UNIGRAM:
            arrays |= {f"{kind}/{file}": np.frombuffer(content, np.uint8) for file, content in files.items()}
    described = {"transformers": transformers.__version__, "texts": SAMPLES, "second": SECOND, "cases": CASES}
    arrays["described"] = np.frombuffer(json.dumps(described).encode(), np.uint8)
    np.savez_compressed(HERE / "tokenizers.npz", **arrays)


if __name__ == "__main__":
    main()
