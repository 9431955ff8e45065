"""Make text_*.json and text_*.model: what sentencepiece and transformers give for our own sentences.

Run where those two are installed: python -m tests.goldens.make_text. The tests need neither of them.
"""

import io
import json
import random
import unicodedata
from pathlib import Path

import sentencepiece
import tokenizers
import transformers

HERE = Path(__file__).parent

WORDS = {
    "en": "the a quiet narrow bright ancient garden river bridge window market teacher kitchen forest opens crosses "
    "paints repairs remembers and costs because under near seventeen lanterns",
    "pt": "o a um uma jardim rio ponte janela mercado professora cozinha floresta atravessa pinta conserta recorda não "
    "também estação manhã coração árvore",
    "zh": "我 你 今天 明天 喜欢 学习 城市 河流 花园 老师 学生 厨房 音乐 桥 市场 窗户 看见 打开 记得 的 了 在 和 很",
    "hi": "नमस्ते दुनिया किताब पानी बगीचा नदी पुल खिड़की शिक्षक सुबह है और में का क्षत्रिय",
}

TEXTS = [
    "",
    " ",
    "The quiet teacher opens a window near the river.",
    "A professora atravessa a ponte, e o jardim não é estreito.",
    "今天我在花园看见老师，很喜欢。",
    "नमस्ते दुनिया, नदी में पानी है",
    unicodedata.normalize("NFD", "A estação também é antiga: coração, árvore, manhã."),
    "क\u093c\u094d\u0937\u0947\u0902 and ष\u094d\u0930\u0940\u0903 with stacked marks e\u0301\u0323\u0302",
    "family 👨\u200d👩\u200d👧 wave 👋🏽 flag 🇧🇷 heart ❤\ufe0f",
    "a literal </s> and <s> and <unk> and <0x41> and <sep> typed",
    "tab\there\nnew line\r\nand   three spaces   ",
    "   leading and trailing   ",
    "ｆｕｌｌ－ｗｉｄｔｈ　１２３！",
    "zero\u200bwidth\u200djoiner\ufeffmark\u00adsoft",
    "\u2581lower\u2581\u2581blocks \u2581",
    "nul\x00and\x01control\x7f",
    "unknown 漢字 Ωμέγα 漢",
    "....... 1111111 aaaaaaa hahahaha",
    "the lanterns " * 60,
    "x" * 400,
    "http://example.org/a?b=c&d=1",
    "xyzxyzzxyxyz",
]


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


def train(name: str, rules_path: Path, **options: object) -> bytes:
    model = io.BytesIO()
    settings = {"vocab_size": 300, "character_coverage": 1.0, "hard_vocab_limit": False, "num_threads": 1} | options
    if settings.pop("rules", False):
        settings["normalization_rule_tsv"] = str(rules_path)
    else:
        settings["normalization_rule_name"] = "identity"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()), model_writer=model, minloglevel=2, **settings
    )
    (HERE / f"text_{name}.model").write_bytes(model.getvalue())
    return model.getvalue()


def sentencepiece_goldens() -> None:
    rules_path = HERE / "rules.tsv"
    rules_path.write_text(rules(), encoding="utf-8")
    symbols = ["<sep>", "xy", "yz", "xyz", "a b", "👋🏽", "▁and", "\u3000"]
    models = {
        "unigram": train("unigram", rules_path, rules=True),
        "unigram_bytes": train("unigram_bytes", rules_path, byte_fallback=True, vocab_size=600),
        "unigram_symbols": train(
            "unigram_symbols",
            rules_path,
            rules=True,
            user_defined_symbols=symbols,
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            unk_surface=" (?) ",
        ),
        "unigram_suffix": train("unigram_suffix", rules_path, rules=True, treat_whitespace_as_suffix=True),
        "bpe": train("bpe", rules_path, rules=True, model_type="bpe", user_defined_symbols=symbols),
        "bpe_bytes": train(
            "bpe_bytes",
            rules_path,
            model_type="bpe",
            byte_fallback=True,
            vocab_size=600,
            remove_extra_whitespaces=False,
            split_digits=True,
        ),
        "bpe_across": train("bpe_across", rules_path, model_type="bpe", split_by_whitespace=False),
        "characters": train("characters", rules_path, model_type="char"),
        "words": train("words", rules_path, model_type="word", vocab_size=90),
    }
    rules_path.unlink()
    generator = random.Random(3)
    cases = {}
    for name, data in models.items():
        peer = sentencepiece.SentencePieceProcessor(model_proto=data)
        known = [peer.id_to_piece(index) for index in range(peer.vocab_size())]
        drawn = [[generator.choice(known) for _ in range(generator.randint(1, 8))] for _ in range(20)]
        cases[name] = {
            "texts": [[text, peer.encode(text, out_type=str), peer.encode(text)] for text in TEXTS],
            "pieces": [[pieces, peer.decode(pieces)] for pieces in drawn],
        }
    golden = {"sentencepiece": sentencepiece.__version__, "models": cases}
    write("text_sentencepiece.json", golden)


def huggingface_goldens() -> None:
    words = sorted({word for words in WORDS.values() for word in words.lower().split()} | set("abcdefghijklmnopqrstu"))
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words, *(f"##{letter}" for letter in "aeinorst")]
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
    cases = [
        [limit, text, peer(text, truncation=True, max_length=limit)["input_ids"]]
        for limit in (2, 3, 8, 64)
        for text in TEXTS
    ]
    write(
        "text_huggingface.json",
        {"transformers": transformers.__version__, "tokenizer": json.loads(file), "cases": cases},
    )


def write(name: str, golden: object) -> None:
    (HERE / name).write_text(json.dumps(golden, ensure_ascii=True, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sentencepiece_goldens()
    huggingface_goldens()
