"""Writes what sentencepiece and transformers make of our own sentences, and the small models that they are made with.

text_*.model, text_sentencepiece.json    models that sentencepiece trains, its pieces and ids
text_huggingface.json                    a tokenizer.json, and the ids that it cuts a text to
tokenizers.npz                           folders without a tokenizer.json; DeBERTa's are its converter's, as
                                         weights/huggingface/sentencepiece_files.py says
"""

import importlib
import io
import json
import random
import tempfile
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import sentencepiece
import tokenizers
import transformers

from tests import GOLDENS
from tests.goldens.writing import bytes_of, write_arrays, write_json

WORDS = {
    "en": "the a quiet narrow bright ancient garden river bridge window market teacher kitchen forest opens crosses "
    "paints repairs remembers and costs because under near seventeen lanterns",
    "pt": "o a um uma jardim rio ponte janela mercado professora cozinha floresta atravessa pinta conserta recorda não "
    "também estação manhã coração árvore",
    "zh": "我 你 今天 明天 喜欢 学习 城市 河流 花园 老师 学生 厨房 音乐 桥 市场 窗户 看见 打开 记得 的 了 在 和 很",
    "hi": "नमस्ते दुनिया किताब पानी बगीचा नदी पुल खिड़की शिक्षक सुबह है और में का क्षत्रिय",
}

TEXTS = [
    "", " ", "The quiet teacher opens a window near the river.",
    "A professora atravessa a ponte, e o jardim não é estreito.", "今天我在花园看见老师，很喜欢。",
    "नमस्ते दुनिया, नदी में पानी है",
    unicodedata.normalize("NFD", "A estação também é antiga: coração, árvore, manhã."),
    "क\u093c\u094d\u0937\u0947\u0902 and ष\u094d\u0930\u0940\u0903 with stacked marks e\u0301\u0323\u0302",
    "family 👨\u200d👩\u200d👧 wave 👋🏽 flag 🇧🇷 heart ❤\ufe0f",
    "a literal </s> and <s> and <unk> and <0x41> and <sep> typed", "tab\there\nnew line\r\nand   three spaces   ",
    "   leading and trailing   ", "ｆｕｌｌ－ｗｉｄｔｈ　１２３！", "zero\u200bwidth\u200djoiner\ufeffmark\u00adsoft",
    "\u2581lower\u2581\u2581blocks \u2581", "nul\x00and\x01control\x7f", "unknown 漢字 Ωμέγα 漢",
    "....... 1111111 aaaaaaa hahahaha", "the lanterns " * 60, "x" * 400, "http://example.org/a?b=c&d=1", "xyzxyzzxyxyz",
]  # fmt: skip


def corpus() -> list[str]:
    generator = random.Random(20)
    lines = []
    for language, words in WORDS.items():
        space = "" if language == "zh" else " "
        for _ in range(500):
            lines.append(space.join(generator.choice(words.split()) for _ in range(generator.randint(3, 9))))
    return lines


def rules() -> str:
    """A small normalizer of our own: NFKC of some characters, and rules longer than one character."""
    composed = [chr(code) for code in [*range(0xC0, 0x180), *range(0x958, 0x960)]]
    pairs = {unicodedata.normalize("NFD", one): unicodedata.normalize("NFC", one) for one in composed}
    pairs |= {chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
    pairs |= {"\u3000": " ", "\t": " ", "\n": " ", "\r": " ", "\xa0": " ", "\u200b": "", "\ufeff": "", "\x01": ""}
    pairs |= {"...": "…", "ha": " ha", "hah": "h  a"}
    rows = [
        "\t".join(" ".join(f"{ord(character):X}" for character in side) for side in (before, after))
        for before, after in pairs.items()
        if before != after
    ]
    return "\n".join(rows) + "\n"


TYPED = [
    "the [CLS] garden[SEP][MASK] [UNK] [PAD] [cls]", "the <s> garden</s><mask> <mask> <unk> <pad> <S>",
    "a <extra_id_1> b <new> <NEW>", "``quoted'' it's they're 1,000, 2,", "Ünïcödé ﬁ ½ Ⅷ İSTANBUL ΑΣ",
    "a\xa0b\u2028c\u3000d", "garden\u0301s quiet\u0327", "テスト ｶﾞ 한국어 ไทย العربية", "x" * 101,
]  # fmt: skip
SAMPLES = [text if len(text) < 100 else text[:60] for text in TEXTS] + TYPED
SECOND = "A quiet <mask> garden."
CONTROL = ["[CLS]", "[SEP]", "[MASK]"]
UNIGRAM = "text_unigram.model"  # which is another golden
# Vocabulary -> name, which begins with the model's type -> tokenizer_config.json.
SETTINGS = {
    "words": {
        "bert": {}, "bert cased": {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False},
        "distilbert": {"tokenizer_class": "DistilBertTokenizer"}, "electra": {"strip_accents": False},
    },
    "fairseq words": {"mpnet": {"model_max_length": 12}},
    "bytes": {
        "roberta": {},
        "roberta prefixed": {
            "add_prefix_space": True, "mask_token": {"__type": "AddedToken", "content": "<mask>", "lstrip": True},
        },
        "gpt2": {}, "gpt2 prefixed": {"add_prefix_space": True, "unk_token": "<unk>"},
        "qwen2": {"tokenizer_class": "Qwen2Tokenizer"}, "qwen3": {"pad_token": "<pad>"},
    },
    "llama": {
        "llama": {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True},
        "llama legacy": {
            "tokenizer_class": "LlamaTokenizer", "legacy": True, "add_bos_token": False, "add_eos_token": True,
        },
        "llama bare": {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": False},
    },
    UNIGRAM: {"xlm-roberta": {}, "camembert": {}},
    "albert": {"albert": {}, "albert cased": {"do_lower_case": False, "keep_accents": True}},
    "t5": {"t5": {"extra_ids": 5}},
    "deberta": {"deberta": {}, "deberta split": {"do_lower_case": True, "split_by_punct": True}},
}  # fmt: skip
FURTHER = {"distilbert": {"mask_token": {"content": "[MASK]", "lstrip": True, "normalized": False}}}
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

SYMBOLS = ["<sep>", "xy", "yz", "xyz", "a b", "👋🏽", "▁and", "\u3000"]
IDENTITY = {"normalization_rule_tsv": "", "normalization_rule_name": "identity"}
TRAINED = {
    "unigram": {},
    "unigram_bytes": IDENTITY | {"byte_fallback": True, "vocab_size": 600},
    "unigram_symbols": {
        "user_defined_symbols": SYMBOLS, "remove_extra_whitespaces": False, "add_dummy_prefix": False,
        "unk_surface": " (?) ",
    },
    "unigram_suffix": {"treat_whitespace_as_suffix": True},
    "bpe": {"model_type": "bpe", "user_defined_symbols": SYMBOLS},
    "bpe_bytes": IDENTITY | {
        "model_type": "bpe", "byte_fallback": True, "vocab_size": 600, "remove_extra_whitespaces": False,
        "split_digits": True,
    },
    "bpe_across": IDENTITY | {"model_type": "bpe", "split_by_whitespace": False},
    "characters": IDENTITY | {"model_type": "char"},
    "words": IDENTITY | {"model_type": "word", "vocab_size": 90},
}  # fmt: skip


def train(**options: object) -> bytes:
    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rules.tsv"
        path.write_text(rules(), encoding="utf-8")
        settings = {"vocab_size": 300, "hard_vocab_limit": False, "normalization_rule_tsv": str(path)} | options
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus()), model_writer=model, minloglevel=2, num_threads=1, character_coverage=1.0,
            **settings,
        )  # fmt: skip
    return model.getvalue()


def sentencepiece_goldens() -> None:
    generator, cases = random.Random(3), {}
    for name, options in TRAINED.items():
        data = train(**options)
        (GOLDENS / f"text_{name}.model").write_bytes(data)
        peer = sentencepiece.SentencePieceProcessor(model_proto=data)
        known = [peer.id_to_piece(index) for index in range(peer.vocab_size())]
        drawn = [[generator.choice(known) for _ in range(generator.randint(1, 8))] for _ in range(20)]
        cases[name] = {
            "texts": [[text, peer.encode(text, out_type=str), peer.encode(text)] for text in TEXTS],
            "pieces": [[pieces, peer.decode(pieces)] for pieces in drawn],
        }
    write_json("text_sentencepiece", {"sentencepiece": sentencepiece.__version__, "models": cases}, indent=0)


def all_words() -> list[str]:
    return sorted({word for words in WORDS.values() for word in words.lower().split()} | set("abcdefghijklmnopqrstu"))


def huggingface_goldens() -> None:
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *all_words(), *(f"##{letter}" for letter in "aeinorst")]
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({token: index for index, token in enumerate(vocabulary)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=12)
    file = tokenizer.to_str()
    peer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer.from_str(file))
    limits = [(limit, text) for limit in (2, 3, 8, 64) for text in TEXTS]
    cases = [[most, text, peer(text, truncation=True, max_length=most)["input_ids"]] for most, text in limits]
    made = {"transformers": transformers.__version__, "tokenizer": json.loads(file), "cases": cases}
    write_json("text_huggingface", made, indent=0)


def word_list(special: list[str], end: list[str]) -> bytes:
    parts = [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    return "".join(f"{token}\n" for token in [*special, *all_words(), *parts, *".,'A", *end]).encode()


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
        return {"sentencepiece.bpe.model": (GOLDENS / UNIGRAM).read_bytes()}
    name, settings = SPM[kind]
    return {name: train(**{"vocab_size": 200, "hard_vocab_limit": "model_type" in settings} | settings)}


def peer(folder: Path, name: str, settings: dict) -> tokenizers.Tokenizer:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    if not name.startswith("deberta"):
        return tokenizer.backend_tokenizer
    stated = {name: settings.get(name, False) for name in ("do_lower_case", "split_by_punct")}
    to_ids, file = tokenizer.convert_tokens_to_ids, str(folder / "spm.model")
    original = SimpleNamespace(vocab_file=file, convert_tokens_to_ids=to_ids, **stated)
    converted = importlib.import_module("transformers.convert_slow_tokenizer").DebertaV2Converter(original).converted()
    converted.add_special_tokens(tokenizer.all_special_tokens)
    return converted


def folders_without_a_tokenizer() -> None:
    vocabularies = {kind: vocabulary_files(kind) for kind in SETTINGS}
    new = {"added_tokens.json": {"<new>": vocabularies["words"]["vocab.txt"].count(b"\n")}}
    cases = {
        name: (
            {"model_type": name.split()[0].replace("deberta", "deberta-v2")}, settings,
            {"special_tokens_map.json": FURTHER[name]} if name in FURTHER else new if name == "electra" else {}, kind,
        )
        for kind, named in SETTINGS.items()
        for name, settings in named.items()
    }  # fmt: skip
    arrays: dict[str, np.ndarray] = {}
    for name, (config, settings, further, kind) in cases.items():
        described = {"config.json": config, "tokenizer_config.json": settings} | further
        files = vocabularies[kind] | {file: json.dumps(content).encode() for file, content in described.items()}
        with tempfile.TemporaryDirectory() as folder:
            for file, content in files.items():
                (Path(folder) / file).write_bytes(content)
            tokenizer = peer(Path(folder), name, settings)
        single = [tokenizer.encode(text) for text in SAMPLES]
        pairs = [tokenizer.encode(text, SECOND) for text in SAMPLES]
        numbers = {
            "lengths": [[len(one), len(two)] for one, two in zip(single, pairs)],
            "ids": [index for one in single for index in one.ids],
            "offsets": [place for one in single for place in one.offsets],
            "pair_ids": [index for one in pairs for index in one.ids],
            "pair_types": [index for one in pairs for index in one.type_ids],
        }
        arrays |= {f"{name}/{what}": np.array(some, np.int16) for what, some in numbers.items()}
    for kind, files in vocabularies.items():
        if kind != UNIGRAM:
            arrays |= {f"{kind}/{file}": np.frombuffer(content, np.uint8) for file, content in files.items()}
    described = {"transformers": transformers.__version__, "texts": SAMPLES, "second": SECOND, "cases": cases}
    write_arrays("tokenizers", arrays | {"described": bytes_of(described)}, transformers)


if __name__ == "__main__":
    sentencepiece_goldens()
    huggingface_goldens()
    folders_without_a_tokenizer()
