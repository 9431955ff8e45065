"""Trainers' checkpoints against fairseq's answers, and folders written for other programs against these programs."""

import json
import tempfile
from pathlib import Path

import numpy as np

import fastattn
from bench.checks import Absent, Data, Findings, check
from fastattn.text.translation import TranslationTokenizer
from fastattn.weights import read
from fastattn.weights.ctranslate2 import convert as ctranslate2_convert
from fastattn.weights.huggingface import convert as huggingface_convert
from tests import GOLDENS

MODELS = Path.home() / ".cache" / "fastattn-models"
SIZES = ("35", "38")
REFERENCES = 300
LINES = 30


def _model(*parts: str) -> Path:
    path = MODELS.joinpath(*parts)
    if not path.exists():
        raise Absent(f"{'/'.join(parts)} of the real checkpoints")
    return path


@check(
    "nqo", "both sizes: the texts that fairseq 0.12.2 found with 5 beams, scores within 1e-4; the shipped references"
)
def nqo(findings: Findings, data: Data) -> None:
    from sacrebleu import corpus_bleu

    golden = json.loads((GOLDENS / "trainers" / "nqo.json").read_text(encoding="utf-8"))
    test = _model("nqo", "test_data")
    lines, references = (
        (test / f"diane_parallel_002.{name}").read_text(encoding="utf-8").split("\n") for name in ("bam-g", "nqo")
    )
    for size in SIZES:
        translator = fastattn.Translator(_model("nqo", f"latin2nqo_001.{size}"), "float32")
        answers = golden[size]
        sources = ["musa dunbuya", *(line.lower() for line in lines[: len(answers) - 1])]
        results = translator.translate(sources, details=True)
        pairs = list(zip(results, answers))
        same = [result.text == answer["text"] for result, answer in pairs]
        findings.at_least(f"{size}: fairseq's texts", sum(same), f"of {len(same)}", len(same))
        worst = max(abs(result.scores[0] - answer["score"]) for result, answer in pairs if result.scores)
        findings.at_most(f"{size}: scores differ by", worst, "", 1e-4)
        texts = translator.translate([line.lower() for line in lines[:REFERENCES]])
        bleu = corpus_bleu(texts, [references[:REFERENCES]], tokenize="none").score
        findings.say(f"{size}: BLEU {bleu:.1f} of {REFERENCES} shipped references")


@check(
    "convert-round-trips",
    f"tokens equal and scores within 1e-4, beam 4, {LINES} lines of FLORES: zh-en written for CTranslate2 (float32, "
    "int8) and transformers, minilm for sentence-transformers",
)
def round_trips(findings: Findings, data: Data) -> None:
    import ctranslate2
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModelForSeq2SeqLM

    checkpoint = read(_model("zh-en"))
    tokenizer = TranslationTokenizer(checkpoint.text)
    sources = [tokenizer.source_tokens(line) for line in data.flores("zh")[:LINES]]
    with tempfile.TemporaryDirectory() as top:
        for precision in ("float32", "int8"):
            folder = Path(top, precision)
            folder.mkdir()
            ctranslate2_convert.write(folder, checkpoint, precision)
            peer = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
            theirs = peer.translate_batch(sources, beam_size=4, return_scores=True)
            ours = fastattn.Translator(_model("zh-en"), "float32").translate_tokens(sources, beam_size=4)
            same = sum(a.hypotheses[0] == b.hypotheses[0] for a, b in zip(ours, theirs))
            findings.at_least(f"CTranslate2 of {precision}:", same, f"of {LINES} the same", LINES)
            worst = max(abs(a.scores[0] - b.scores[0]) for a, b in zip(ours, theirs))
            findings.at_most("scores differ by", worst, "", 1e-4)
        folder = Path(top, "marian")
        folder.mkdir()
        huggingface_convert.write(folder, checkpoint, "float32")
        written = read(folder)
        model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        ours = fastattn.Translator(folder, "float32").translate_tokens(sources, beam_size=4)
        ids, same, worst = TranslationTokenizer(written.text), 0, 0.0
        for source, result in zip(sources, ours):
            with torch.inference_mode():
                generated = model.generate(
                    torch.tensor(ids.source_ids(source)[None], dtype=torch.long), num_beams=4, max_new_tokens=250,
                    return_dict_in_generate=True, output_scores=True,
                )  # fmt: skip
            tokens = [written.text.target_vocabulary[i] for i in generated.sequences[0, 1:].tolist()]
            same += [token for token in tokens if token not in ("</s>", "<pad>")] == result.hypotheses[0]
            worst = max(worst, abs(generated.sequences_scores[0].item() - result.scores[0]))
        findings.at_least("transformers:", same, f"of {LINES} the same", LINES)
        findings.at_most("scores differ by", worst, "", 1e-4)
        folder = Path(top, "minilm")
        folder.mkdir()
        huggingface_convert.write(folder, read(_model("minilm")), "float32")
        texts = data.stsb[0][:LINES]
        rows = SentenceTransformer(str(folder), device="cpu").encode(texts)
        worst = float(np.abs(rows - fastattn.Encoder(_model("minilm"), "float32").encode(texts)).max())
        findings.at_most("sentence-transformers: vectors differ by", worst, "", 1e-4)
