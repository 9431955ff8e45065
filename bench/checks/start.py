"""Start-up: imports, loading, compiling, and the memory of a process that does it; large models too."""

import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bench.checks import Data, Findings, check, need
from bench.checks.compare import THREADS, command_of, folder_of, in_child, plural, python, request
from bench.checks.light import PEER, translate_locally, write_lines
from bench.convert import converted
from bench.machine import ROOT
from bench.memory import peak_of_command
from bench.timing import alternate, once
from fastattn.system.cache_folder import cache_root
from fastattn.weights.containers.safetensors import NewTensor, write_tensors

LIGHT_MB = 162  # at their peak, a line with en-pt
LOAD = """
import json, time
start = time.perf_counter()
import fastattn
imported = time.perf_counter()
fastattn.Translator("zh-en")
print(json.dumps([imported - start, time.perf_counter() - imported]))
"""


def _translate(data: Data) -> list[str]:
    """The command that translates a sentence, in int8, which "auto" selects for this checkpoint."""
    return ["-m", "fastattn.cli", "translate", "-m", "zh-en", data.flores("zh")[0]]


@check("start-warm", "a fresh process, kernels in the cache, median of 5: import fastattn 0.3 s, Translator 0.7 s")
def warm(findings: Findings, data: Data) -> None:
    python("-c", LOAD)
    imports, translators = zip(*(json.loads(python("-c", LOAD)) for _ in range(5)), strict=True)
    findings.at_most("import", statistics.median(imports), "s", 0.3)
    findings.at_most("Translator", statistics.median(translators), "s", 0.7)


@check("int8-start", "the command that translates a sentence in int8, fresh process, kernels in the cache, of 5: 1.0 s")
def warm_int8(findings: Findings, data: Data) -> None:
    command = [*_translate(data), "--precision", "int8"]
    python(*command)
    times = [once(lambda: python(*command)) for _ in range(5)]
    findings.at_most("median", statistics.median(times), "s", 1.0, f"{min(times):.2f} to {max(times):.2f} s")


@check(
    "start-light",
    "a line with en-pt, int8, fresh process, kernels in the cache: at most 1.2 x translateLocally's time, and no more "
    f"memory than the {LIGHT_MB} MB that it took before kernels were loaded without Numba",
)
def light(findings: Findings, data: Data) -> None:
    line = data.flores("en")[0]
    command = command_of("en-pt", line)
    with translate_locally() as (peer, scratch):
        theirs = peer.command("en-pt", write_lines(scratch / "line", [line]), scratch / "out", max(THREADS))
        _beside(
            findings, command, lambda: subprocess.run(theirs[0], env=theirs[1], check=True, capture_output=True), PEER
        )
        peaks = peak_of_command([sys.executable, *command]), peak_of_command(*theirs)
    findings.at_most("peak", peaks[0] / 1e6, "MB", LIGHT_MB, f"{PEER} {peaks[1] / 1e6:.0f} MB")


# What a user of CTranslate2 would write for one sentence; with a second thread it takes longer.
ENCODE = """
import sys
import ctranslate2, numpy, tokenizers
model, file, text = sys.argv[1:]
encoder = ctranslate2.Encoder(model, compute_type="float32", intra_threads=1)
tokenizer = tokenizers.Tokenizer.from_file(file)
tokenizer.no_padding()
rows = encoder.forward_batch([tokenizer.encode(text).ids]).last_hidden_state
vector = numpy.asarray(rows)[0].mean(0)
print(*vector / numpy.linalg.norm(vector))
"""


@check(
    "start-encode",
    "a line with MiniLM, float32, fresh process, kernels in the cache: at most 1.2 x the time of a script that encodes "
    "it with CTranslate2 and tokenizers",
)
def encode(findings: Findings, data: Data) -> None:
    need("ctranslate2", "tokenizers", "transformers", "torch")
    folder, line = folder_of("minilm"), data.flores("en")[0]
    peers = cache_root() / "bench"
    peers.mkdir(parents=True, exist_ok=True)
    command = ["-m", "fastattn.cli", "encode", "--model", str(folder), "--precision", "float32", line]
    model = converted(folder, peers, "CTranslate2", "float32")
    script = ["-c", ENCODE, str(model), str(folder / "tokenizer.json"), line]
    ours = np.array(json.loads(python(*command))["embedding"])
    theirs = np.array(python(*script).split(), np.float64)
    if np.abs(ours - theirs).max() > 1e-4:
        raise RuntimeError("the vectors differ")
    _beside(findings, command, lambda: python(*script), "CTranslate2")
    peaks = [peak_of_command([sys.executable, *side]) / 1e6 for side in (command, script)]
    findings.say(f"peak {peaks[0]:.0f} MB, CTranslate2's {peaks[1]:.0f} MB")


def _beside(findings: Findings, command: list[str], peer: Callable[[], object], name: str) -> None:
    seconds = alternate({"ours": lambda: python(*command), "theirs": peer}, rounds=15, seconds=60.0)
    remark = f"{seconds['ours']:.3f} and {seconds['theirs']:.3f} s"
    findings.at_most("whole process:", seconds["ours"] / seconds["theirs"], f"x {name}'s time", 1.2, remark)


@check("start-cold", "an empty cache: the command that translates a line with en-pt as a user gets it takes 8 s in all")
def cold(findings: Findings, data: Data) -> None:
    command = command_of("en-pt", data.flores("en")[0])
    first, again = _cold_and_warm(command)
    findings.at_most("first", first, "s", 8, f"then {again:.2f} s")


@check(
    "cold-all",
    "an empty cache: 20 s of compiling for the command that translates a sentence as a user gets it, in int8, "
    "40 s for all there is in all precisions (warmup)",
)
def cold_all(findings: Findings, data: Data) -> None:
    first, again = _cold_and_warm(_translate(data))
    findings.at_most("one translation", first - again, "s", 20, f"{first:.1f} s, then {again:.1f} s")
    with tempfile.TemporaryDirectory() as folder:
        cache = _empty_cache(Path(folder))
        findings.at_most("warmup", once(lambda: python("-m", "fastattn.cli", "warmup", cache=cache)), "s", 40)


def _cold_and_warm(command: list[str]) -> tuple[float, float]:
    """Seconds of a command's first run, with an empty cache, and of later ones."""
    with tempfile.TemporaryDirectory() as folder:
        cache = _empty_cache(Path(folder))
        first = once(lambda: python(*command, cache=cache))
        return first, statistics.median(once(lambda: python(*command, cache=cache)) for _ in range(3))


def _empty_cache(folder: Path) -> Path:
    """A cache with the checkpoints but no kernels."""
    (folder / "checkpoints").symlink_to(cache_root().absolute() / "checkpoints", target_is_directory=True)
    return folder


@check(
    "zh-en-memory",
    "peak resident after loading and one sentence, greedy, one thread and two: 1.5 x the weights in float32 and 200 MB",
)
def memory(findings: Findings, data: Data) -> None:
    for threads in THREADS:
        found = in_child(request(data, "resources", threads, item="translate fastattn", size="toy"))
        wanted = (1.5 * found["weights"] + 200e6) / 1e6
        remark = f"weights {found['weights'] / 1e6:.0f} MB"
        findings.at_most(plural(threads), found["resident"] / 1e6, "MB", wanted, remark)


SHAPE = "NLLB-1.3B's shape, random weights, 5.5 GB of float32"
LARGE_LOAD = """
import json, sys, time
start = time.perf_counter()
from fastattn import Translator
model = Translator(sys.argv[1], precision="int8", threads=2)
took = time.perf_counter() - start
print(json.dumps([took, model.translate("a b c", beam_size=1, max_decoding_length=8, min_decoding_length=8)]))
"""


@contextmanager
def _scratch() -> Iterator[tuple[Path, Path]]:
    """(the checkpoint's folder, an empty cache with the kernels of the machine's), deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="fastattn-large-") as name:
        folder, cache = Path(name), Path(name) / "cache"
        cache.mkdir()
        kernels = cache_root().absolute() / "kernels"
        kernels.mkdir(parents=True, exist_ok=True)
        (cache / "kernels").symlink_to(kernels, target_is_directory=True)
        yield write_large(folder / "large"), cache


@check(
    "large-load",
    f"{SHAPE}, in int8: the first load, which packs it, and a sentence in at most 1.2 x the packed weights' bytes at "
    "the peak; later loads in a second",
)
def large_load(findings: Findings, data: Data) -> None:
    with _scratch() as (folder, cache):
        environment = {**os.environ, "FASTATTN_CACHE": str(cache)}
        command = [sys.executable, "-c", LARGE_LOAD, str(folder)]
        peak = peak_of_command(command, environment)
        (packed,) = (cache / "packed").glob("*.packed")
        size = packed.stat().st_size
        findings.at_most("first load:", peak / size, f"x {size / 1e6:.0f} MB", 1.2, f"{peak / 1e6:.0f} MB")
        found = [json.loads(python("-c", LARGE_LOAD, str(folder), cache=cache)) for _ in range(5)]
        times = [took for took, _ in found][1:]  # the first of them writes what the others find
        findings.at_most("later:", statistics.median(times), "s", 1.0, f"{min(times):.2f} to {max(times):.2f} s")
        peak = peak_of_command(command, environment)
        findings.say(f"later peak {peak / 1e6:.0f} MB")


@check("large-convert", f"{SHAPE}: convert --precision int8 with at most its folder's bytes in memory at the peak")
def convert(findings: Findings, data: Data) -> None:
    with _scratch() as (folder, cache):
        out = folder.parent / "out"
        command = [sys.executable, "-m", "fastattn.cli", "convert", str(folder), str(out), "--precision", "int8"]
        peak = peak_of_command(command, {**os.environ, "FASTATTN_CACHE": str(cache)})
        size = (out / "model.safetensors").stat().st_size
        findings.at_most("peak", peak / size, f"x {size / 1e6:.0f} MB", 1.0, f"{peak / 1e6:.0f} MB")
        shutil.rmtree(out)


WIDTH, INNER, LAYERS, HEADS, WORDS = 1024, 8192, 24, 16, 256_206
_DRAWN = 1 << 22  # numbers, again and again


def write_large(folder: Path, layers: int = LAYERS) -> Path:
    """5.5 GB of float32, as transformers writes Marian's: neither values nor tensors' names change speed or memory."""
    folder.mkdir()
    shapes: dict[str, tuple[int, ...]] = {"model.shared.weight": (WORDS, WIDTH), "final_logits_bias": (1, WORDS)}

    def linear(name: str, rows: int, columns: int) -> None:
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (rows, columns), (rows,)

    for stack, blocks in (("encoder", ("self_attn",)), ("decoder", ("self_attn", "encoder_attn"))):
        for i in range(layers):
            layer = f"model.{stack}.layers.{i}"
            for block in blocks:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    linear(f"{layer}.{block}.{part}", WIDTH, WIDTH)
                shapes |= dict.fromkeys((f"{layer}.{block}_layer_norm.{end}" for end in ("weight", "bias")), (WIDTH,))
            linear(f"{layer}.fc1", INNER, WIDTH)
            linear(f"{layer}.fc2", WIDTH, INNER)
            shapes |= dict.fromkeys((f"{layer}.final_layer_norm.{end}" for end in ("weight", "bias")), (WIDTH,))
    numbers = np.random.default_rng(0).standard_normal(_DRAWN, np.float32) * np.float32(0.03)

    def tensor(shape: tuple[int, ...]) -> NewTensor:
        size = math.prod(shape)
        return NewTensor(
            "F32", shape, lambda: (numbers[: min(_DRAWN, size - first)] for first in range(0, size, _DRAWN))
        )

    with open(folder / "model.safetensors", "xb") as stream:
        write_tensors(stream, {name: tensor(shape) for name, shape in shapes.items()})
    words = ["</s>", "<unk>", *(f"word{i}" for i in range(WORDS - 3)), "<pad>"]
    pad = WORDS - 1
    config = {
        "model_type": "marian", "architectures": ["MarianMTModel"], "vocab_size": WORDS, "decoder_vocab_size": WORDS,
        "d_model": WIDTH, "encoder_layers": layers, "decoder_layers": layers, "encoder_attention_heads": HEADS,
        "decoder_attention_heads": HEADS, "encoder_ffn_dim": INNER, "decoder_ffn_dim": INNER,
        "activation_function": "relu", "scale_embedding": True, "max_position_embeddings": 512,
        "share_encoder_decoder_embeddings": True, "tie_word_embeddings": True, "is_encoder_decoder": True,
        "pad_token_id": pad, "decoder_start_token_id": pad, "bad_words_ids": [[pad]], "eos_token_id": 0,
        "bos_token_id": 0, "forced_eos_token_id": 0, "normalize_before": False, "normalize_embedding": False,
        "static_position_embeddings": True, "num_beams": 1,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes((ROOT / "tests" / "goldens" / "text_unigram.model").read_bytes())
    return folder
