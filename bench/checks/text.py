"""Sentencepiece models read by fastattn against sentencepiece itself."""

from bench.checks import Data, check
from fastattn.text.sentencepiece import SentencePiece
from fastattn.weights import read
from fastattn.weights.download import catalog

ODD = [
    "",
    " ",
    "  two  spaces  ",
    "tab\tand\nnewline",
    "a literal </s> and <s> and <unk> in the text",
    "cafe\u0301 nai\u0308ve A\u030angstro\u0308m",
    "क्षत्रिय नमस्ते दुनिया",
    "বাংলা ভাষা ক্ষমা",
    "தமிழ் மொழி",
    "👩\u200d👩\u200d👧\u200d👦 and 🏳️\u200d🌈 and 👍🏽",
    "a\u0300\u0301\u0302\u0303 stacked",
    "\u200bzero\u200cwidth\u200d\ufeff",
    "ＦＵＬＬ　ｗｉｄｔｈ １２３",
    "ﬁ ligature ½ ² ™",
]


@check("sentencepiece", "no difference from sentencepiece on FLORES dev in three languages and odd text")
def pieces(data: Data) -> tuple[bool, str]:
    import sentencepiece

    model = read(catalog.resolve("zh-en")).text.source_model
    ours = SentencePiece(model)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    lines = [line for language in ("en", "pt", "zh") for line in data.flores(language)]
    differences = 0
    for line in lines + ODD:
        expected = theirs.encode(line, out_type=str)
        found = ours.pieces(line)
        differences += found != expected or ours.text(found) != theirs.decode(expected)
    return differences == 0, f"{differences} of {len(lines) + len(ODD)} lines differ"
