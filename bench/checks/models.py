"""MiniLM and zh-en in each precision: speed and quality against their peers'."""

import json
import shutil
import tempfile
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from bench.case import OURS
from bench.checks import Absent, Data, Findings, check, need
from bench.checks.compare import THREADS, against, compare, pause, plural, request, timed
from bench.encoders import ENCODERS, TRANSLATORS, Tokenizer, alone
from bench.model_cases import encode_cases, translate_cases
from bench.timing import alternate, library_threads
from fastattn import Encoder
from fastattn.weights import download

PEER = "CTranslate2"


def _spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Rank correlation; ties have their mean rank."""

    def ranks(values: np.ndarray) -> np.ndarray:
        _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[inverse]

    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


@check("minilm-vectors", "STS dev sentences: largest difference from sentence-transformers 1e-5; Spearman to 1e-4")
def vectors(findings: Findings, data: Data) -> None:
    from sentence_transformers import SentenceTransformer

    *pairs, scores = data.stsb
    peer = SentenceTransformer(str(download.resolve("minilm")), device="cpu")
    ours, theirs = ([model.encode(texts) for texts in pairs] for model in (Encoder("minilm", "float32"), peer))
    difference = max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))
    ranks = [_spearman((a * b).sum(1), np.array(scores)) for a, b in (ours, theirs)]
    findings.at_most("largest difference", difference, "", 1e-5)
    findings.at_most("Spearman", abs(ranks[0] - ranks[1]), "apart", 1e-4, f"{ranks[0]:.5f}, {ranks[1]:.5f}")


@check(
    "minilm-peers",
    "486 sentences, tokenizing included: at least 1.2 x CTranslate2 and ONNX Runtime on one thread, 1.3 x on two, "
    "and 3.5 x sentence-transformers",
)
def peers(findings: Findings, data: Data) -> None:
    for threads in THREADS:
        near = 1.2 if threads == 1 else 1.3
        bounds = {PEER: near, "ONNX Runtime": near, "sentence-transformers": 3.5}
        make = next(encode_cases(request(data, "encode", threads, engines=(OURS, *bounds))))
        with library_threads(threads):
            sides = compare(make(), threads, rounds=7, seconds=40.0)
        for name, least in bounds.items():
            remark = f"{sides[name]['rate']}, {sides[name]['setting']}"
            findings.at_least(f"{plural(threads)}:", sides[name]["ratio"], f"x {name}", least, remark)
        findings.say(f"{OURS} {sides[OURS]['rate']}")


@check("minilm-single", "one sentence at a time, tokenizing included, one thread and two: at least 2 x ONNX Runtime")
def single_vectors(findings: Findings, data: Data) -> None:
    peer = "ONNX Runtime"
    for precision, threads in product(("float32", "int8"), THREADS):
        with library_threads(threads):
            fields = {"precision": precision, "engines": (OURS, peer)}
            _, make = encode_cases(request(data, "encode", threads, **fields))
            sides = compare(make(), threads, rounds=9, seconds=20.0)
        remark = f"{sides[OURS]['rate']}, {sides[peer]['rate']}"
        findings.at_least(f"{precision}, {plural(threads)}:", sides[peer]["ratio"], f"x {peer}", 2.0, remark)


def _batch(findings: Findings, data: Data, precision: str, beam: int, sentences: int, least: float) -> None:
    for threads in THREADS:
        # with scaling, only the cases of batches are made: greedy, then beam 4
        fields = {"precision": precision, "engines": (OURS, PEER), "scaling": True, "sentences": sentences}
        with library_threads(threads):
            greedy, searched = translate_cases(request(data, "translate", threads, **fields))
            seconds = 60.0 if precision == "float32" else 30.0
            sides = compare((greedy if beam == 1 else searched)(), threads, rounds=5, seconds=seconds)
        peer = sides[PEER]
        remark = f"{sides[OURS]['rate']}, {peer['rate']} by {peer['setting']}, {peer['agreement']}"
        findings.at_least(f"{plural(threads)}:", peer["ratio"], f"x {PEER}", least, remark)


def _one_by_one(texts: list[str], beam: int, precision: str, rounds: int) -> tuple[dict, dict]:
    """({(engine, threads): a call for all texts}, {(engine, threads): median seconds}), timed in turn."""
    folder, calls = download.resolve("zh-en"), {}
    for engine, threads in product((OURS, PEER), THREADS):
        # the first setting uses all threads for one sentence
        translate = next(iter(alone(TRANSLATORS[engine].make(folder, threads, precision)).values()))
        calls[engine, threads] = lambda translate=translate: [translate([text], beam)[0] for text in texts]
    with library_threads(max(THREADS)):
        return calls, alternate(calls, rounds, seconds=60.0, pause=pause(max(THREADS)))


def _single(findings: Findings, data: Data, beam: int, least: float) -> None:
    texts = data.flores("zh")[:64:5]
    _, times = _one_by_one(texts, beam, "float32", rounds=5)
    rates = {side: f"{1e3 * seconds / len(texts):.0f} ms a sentence" for side, seconds in times.items()}
    best = min(times[PEER, threads] for threads in THREADS)
    for threads in THREADS:
        ratio = best / times[OURS, threads]
        findings.at_least(f"{plural(threads)}:", ratio, f"x {PEER}", least, rates[OURS, threads])
    findings.say(", ".join(f"{PEER} on {plural(threads)} {rates[PEER, threads]}" for threads in THREADS))


BATCH = "sentences, one thread and two: at least"
BEST = "at its best batches and division of threads"
SINGLE = "one sentence at a time, on one thread and on two: against the better of CTranslate2's one and two, at least"
for _name, _search, _beam, _least in (("greedy", "greedy", 1, 1.4), ("beam", "beam 4", 4, 1.5)):
    check(f"zh-en-batch-{_name}", f"{_search}, 64 {BATCH} 1.5 x CTranslate2 {BEST}")(
        partial(_batch, precision="float32", beam=_beam, sentences=64, least=1.5)
    )
    check(f"int8-zh-en-batch-{_name}", f"{_search}, 128 {BATCH} 2 x CTranslate2's int8 {BEST}")(
        partial(_batch, precision="int8", beam=_beam, sentences=128, least=2.0)
    )
    check(f"zh-en-single-{_name}", f"{_search}, {SINGLE} {_least} x")(partial(_single, beam=_beam, least=_least))


@check(
    "int8-zh-en-single",
    "one sentence at a time, beam 4, each side at its better of one thread and two: 3.5 x CTranslate2's int8 a token",
)
def single_int8(findings: Findings, data: Data) -> None:
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_file=str(download.resolve("zh-en") / "sentencepiece.model"))
    calls, times = _one_by_one(data.flores("zh")[:128:10], 4, "int8", rounds=7)
    tokens = {engine: sum(len(pieces.encode(text)) + 1 for text in calls[engine, 1]()) for engine in (OURS, PEER)}
    each = {side: 1e3 * seconds / tokens[side[0]] for side, seconds in times.items()}
    best = {engine: min(each[engine, threads] for threads in THREADS) for engine in (OURS, PEER)}
    findings.at_least("", best[PEER] / best[OURS], f"x {PEER}", 3.5)
    findings.say(", ".join(f"{engine} on {plural(n)} {each[engine, n]:.2f} ms a token" for engine, n in each))


PEERS = ("sentence-transformers", PEER, "ONNX Runtime", "OpenVINO")


def _ahead(findings: Findings, data: Data, precisions: tuple[str, ...], engines: tuple[str, ...], least: float) -> None:
    """Of PEERS, the installed ones with the precision count; of a shorter list of engines none may be missing."""
    for precision, threads in product(precisions, THREADS):
        with library_threads(threads):
            fields = {"precision": precision, "engines": (OURS, *engines)}
            case = next(encode_cases(request(data, "encode", threads, **fields)))()
            absent = [f"{name}: {side.absent}" for name, side in case.sides.items() if not side.calls]
            if engines == PEERS:
                present = [name for name in engines if case.sides[name].calls]
                if not present:
                    raise Absent("; ".join(absent))
                case = against(case, *present)
            sides = compare(case, threads, rounds=9, seconds=30.0)
        fastest = min((name for name in sides if name != OURS), key=lambda name: sides[name]["seconds"])
        rates = [f"{name} {side['rate']} {side['setting']}".strip() for name, side in sides.items()]
        what = f"{precision}, {plural(threads)}:"
        findings.at_least(what, sides[fastest]["ratio"], f"x {fastest}", least, "; ".join(rates + absent))


MINILM = "tokenizing included, one thread and two: at least"
check(
    "int8-minilm",
    f"486 sentences, {MINILM} 1.5 x the faster of ONNX Runtime's int8 (dynamic, a factor a column) and CTranslate2's, "
    "each at its best batch size",
)(partial(_ahead, precisions=("int8",), engines=(PEER, "ONNX Runtime"), least=1.5))
check(
    "minilm-best",
    f"486 sentences in int8 and in bfloat16, {MINILM} 1.3 x the fastest of sentence-transformers, CTranslate2, ONNX "
    "Runtime and OpenVINO, of those that are installed and have the precision",
)(partial(_ahead, precisions=("int8", "bfloat16"), engines=PEERS, least=1.3))


def _with_limit(folder: Path, limit: int, target: Path) -> Path:
    """A copy of MiniLM that cuts texts at ``limit`` tokens."""
    shutil.copytree(folder, target)
    file = target / "sentence_bert_config.json"
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | {"max_seq_length": limit}))
    return target


@check(
    "int8-minilm-long",
    "texts of 128 and of 512 tokens, tokenizing included: at least 1.5 x OpenVINO's static int8 at its best batch "
    "size; cosine to float32 at least 0.99",
)
def long_texts(findings: Findings, data: Data) -> None:
    need("openvino", "nncf", "transformers", "torch")
    lines, engines = data.flores("en"), (OURS, "OpenVINO")
    for tokens in (128, 512):
        texts = [" ".join(lines[n : n + tokens // 8]) for n in range(8192 // tokens)]
        with tempfile.TemporaryDirectory() as scratch:
            folder = _with_limit(download.resolve("minilm"), tokens, Path(scratch) / "minilm")
            lengths = [len(ids) for _, batch in Tokenizer(folder).batches(texts, 1) for ids in batch]
            assert min(lengths) == tokens, lengths
            for threads in THREADS:
                with library_threads(threads):
                    calls = {
                        f"{name} {setting}": partial(call, texts)
                        for name in engines
                        for setting, call in ENCODERS[name].make(folder, threads, "int8", Path(scratch)).items()
                    }
                    seconds = timed(calls, threads, rounds=9, seconds=30.0)
                ours = seconds.pop(f"{OURS} ")
                fastest = min(seconds, key=lambda name: seconds[name])
                rates = f"{8192 / ours:,.0f} tokens/s, {8192 / seconds[fastest]:,.0f}"
                findings.at_least(f"{tokens}, {plural(threads)}:", seconds[fastest] / ours, f"x {fastest}", 1.5, rates)
            exact, found = Encoder(folder, "float32").encode(texts), calls[f"{OURS} "]()
        findings.at_least(f"{tokens}, least cosine", float((exact * found).sum(1).min()), "", 0.99)


@check(
    "int8-bleu",
    "zh-en, all 997 lines, beam 4: BLEU in int8 at most 0.2 below CTranslate2's int8, at most 0.2 below our float32",
)
def bleu(findings: Findings, data: Data) -> None:
    import sacrebleu

    folder, lines, references = download.resolve("zh-en"), data.flores("zh"), data.flores("en")
    scores = {}
    with library_threads(2):
        for engine, precision in ((OURS, "int8"), (OURS, "float32"), (PEER, "int8")):
            # the last setting: each thread translates sentences of its own, in the largest batches
            translate = list(TRANSLATORS[engine].make(folder, 2, precision).values())[-1]
            scores[engine, precision] = sacrebleu.corpus_bleu(translate(lines, 4), [references]).score
    ours = scores.pop((OURS, "int8"))
    for (engine, precision), score in scores.items():
        findings.at_least(f"less {engine}'s {precision}:", ours - score, "BLEU", -0.2, f"{ours:.2f}, {score:.2f}")


def _quality(findings: Findings, data: Data, precision: str, apart: float, alike: float) -> None:
    *pairs, scores = data.stsb
    encoders = Encoder("minilm", precision), Encoder("minilm", "float32")
    narrow, wide = ([encoder.encode(texts) for texts in pairs] for encoder in encoders)
    ranks = [_spearman((a * b).sum(1), np.array(scores)) for a, b in (narrow, wide)]
    cosines = np.concatenate([(a * b).sum(1) for a, b in zip(narrow, wide, strict=True)])
    findings.at_most("Spearman apart", abs(ranks[0] - ranks[1]), "", apart, f"{ranks[0]:.5f}, float32 {ranks[1]:.5f}")
    remark = f"mean {cosines.mean():.5f}, {(cosines < alike).sum()} of {len(cosines)} below"
    findings.at_least("least cosine", float(cosines.min()), "", alike, remark)
    # retrieval: how many first sentences find their paraphrase first among all second ones
    pairs_found = [((a @ b.T).argmax(1) == np.arange(len(a)))[np.array(scores) >= 4].mean() for a, b in (narrow, wide)]
    remark = f"{pairs_found[0]:.4f}, float32 {pairs_found[1]:.4f}"
    findings.at_most(
        "paraphrases found first, less than float32's by", pairs_found[1] - pairs_found[0], "", 0.01, remark
    )


for _precision, _apart, _alike in (("int8", 0.002, 0.99), ("bfloat16", 0.0005, 0.9995)):
    _claim = (
        f"STS dev: Spearman within {_apart} of float32; cosine to float32 at least {_alike} everywhere; of the pairs "
        "with a score of 4 or more, the share whose second sentence is found first within 0.01 of float32's"
    )
    check(f"{_precision}-minilm-quality", _claim)(partial(_quality, precision=_precision, apart=_apart, alike=_alike))
