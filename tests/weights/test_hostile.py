"""Files that ask for much, and files damaged at random: refused by name, or read, within memory and steps."""

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from fastattn import weights
from fastattn.errors import CheckpointError, TokenizerError
from fastattn.text.huggingface import HuggingFaceTokenizer
from fastattn.weights.folder import Directory
from tests import ROOT
from tests.weights import hostile_files as files
from tests.weights.ctranslate2 import writer as ctranslate2_writer
from tests.weights.forked import run_forked
from tests.weights.refusals import refusal

HANG = 40  # seconds: what is read here takes about one
STEPS = 40  # a byte
DONE = "done$"
LETTERS = "a" * 2000
CHAIN = files.sequence(*[files.replace("a", "a" * 10)] * 9)


class Case(NamedTuple):
    """What comes of a file, as the beginning of run_hostile.py's answer; no ``steps`` are no count of them."""

    reader: str
    make: Callable[[], bytes]
    outcome: str
    steps: int = STEPS
    text: str = ""


CASES = {
    "a list that a pickle repeats": Case(
        "pytorch", lambda: files.pickle_of_shared_list(10_000, 10_000), "CheckpointError: .* one list again and again"
    ),
    "sizes that a pickle repeats": Case(
        "pytorch", lambda: files.pickle_of_shared_sizes(50_000, 10_000), "CheckpointError: .* one list again and again"
    ),
    "a long name of a storage": Case(
        "pytorch", lambda: files.pickle_of_long_key(60_000, 100_000), "CheckpointError: .* no storage's"
    ),
    "members that share bytes": Case(
        "marian npz", lambda: files.npz_of_shared_bytes(8000, 1 << 20), "CheckpointError: .* more than the archive's", 0
    ),
    "a gzipped shortlist": Case(
        "shortlist", lambda: gzip.compress(b"a a 1\n" * 3_000_000), "CheckpointError: .* unpacks to more than", 0
    ),
    "rules that go round": Case("spm", files.spm_of_cycle, "TokenizerError: .* takes more than", 300, LETTERS),
    "a rule that gives much": Case(
        "spm", lambda: files.spm_of_long_replacement(300_000), "TokenizerError: .* gives more than", 0, LETTERS
    ),
    "symbols, unigram": Case("spm", lambda: files.spm_of_symbols(20_000, 1), DONE, STEPS, "a" * 500),
    "symbols, bpe": Case("spm", lambda: files.spm_of_symbols(20_000, 2), DONE, STEPS, "a" * 500),
    "symbols, characters": Case("spm", lambda: files.spm_of_symbols(20_000, 4), DONE, STEPS, "a" * 500),
    "many symbols": Case("spm", lambda: files.spm_of_symbols(100_000, 1), DONE, 0, "a" * 500),
    "a long piece, unigram": Case(
        "spm", lambda: files.spm_of_long_piece(20_000, 1), "TokenizerError: .* piece is too long", STEPS, "a" * 5000
    ),
    "a long piece, bpe": Case(
        "spm", lambda: files.spm_of_long_piece(20_000, 2), "TokenizerError: .* piece is too long", STEPS, "a" * 5000
    ),
    "replacements upon replacements": Case(
        "tokenizer", lambda: files.tokenizer(CHAIN), "TokenizerError: .* characters of one", 0, "aaa"
    ),
    "anchors that stay open": Case(
        "page", lambda: b'<a href="wanted.zip">x</a>' + b"<a " * 30_000, DONE
    ),
    "quotes that stay open": Case("page", lambda: b'<a href="wanted.zip">' + b"<a \"'" * 50_000, DONE),
    "comments that stay open": Case("page", lambda: b'<a href="wanted.zip">' + b"<!--" * 50_000, DONE),
    "many quotes": Case("page", lambda: b'<a href="wanted.zip"><a ' + b'""' * 100_000, DONE),
    "a line that a text repeats": Case(
        "vocabulary map", lambda: b"a\t" + b"b " * 50_000 + b"\n", DONE, STEPS, "a " * 500
    ),
    "a long n-gram": Case(
        "vocabulary map", lambda: b" ".join([b"a"] * 5000) + b"\tb\n", "CheckpointError: .* more than 64", STEPS,
        "a " * 3000,
    ),
    "sizes of thousands of digits": Case(
        "safetensors", lambda: files.safetensors(f"[{'9' * 4300},{'9' * 4300}]"), "CheckpointError: .* 4300 digits"
    ),
    "an empty tensor, great sizes": Case(
        "safetensors", lambda: files.safetensors("[0" + ",1048576" * 4 + "]", 1 << 20), "CheckpointError: .* shape"
    ),
    "an empty variable of great sizes": Case(
        "ctranslate2", lambda: files.ctranslate2(0, *[1 << 20] * 4), "CheckpointError: .* is empty but has", 0
    ),
    "an empty tensor of a pickle's": Case(
        "pytorch", lambda: files.pytorch((0, *[1 << 20] * 4), (1,) * 5, 1 << 20), "CheckpointError: .* should lie", 0
    ),
    "a GGUF file of empty texts": Case(
        "gguf", lambda: files.gguf_of_texts(30_000), "CheckpointError: .* general.architecture is missing"
    ),
    "a GGUF file of keys": Case(
        "gguf", lambda: files.gguf_of_keys(10_000), "CheckpointError: .* general.architecture is missing"
    ),
    "a GGUF file of too many keys": Case(
        "gguf", lambda: files.gguf_of_keys(150_000), "CheckpointError: .* 150000 keys, more than"
    ),
    "a GGUF file of tokens that can be cut anywhere": Case(
        "gguf", lambda: files.gguf_of_long_tokens(2000, 250), "CheckpointError: .* 2000 tokens should have .* merges"
    ),
    "a stride that is never taken": Case("pytorch", lambda: files.pytorch((1, 2, 2), (1 << 62, 1, 2)), DONE),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_hostile_files(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    (tmp_path / "file.html").write_bytes(case.make())
    (tmp_path / "text").write_text(case.text, "utf-8")
    arguments = (case.reader, str(tmp_path / "file.html"), str(case.steps), str(tmp_path / "text"))
    done = run_forked("-m", "tests.weights.run_hostile", *arguments, timeout=HANG)
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.match(case.outcome, done.stdout), done.stdout


GROWTHS = {
    "none": (None, True),
    "Llama": (files.sequence({"type": "Prepend", "prepend": "\u2581"}, files.replace(" ", "\u2581")), True),
    "ALBERT": (
        files.sequence(
            files.replace("``", '"'), files.replace("''", '"'), {"type": "NFKD"}, {"type": "StripAccents"},
            {"type": "Lowercase"}, files.replace(" {2,}", " ", "Regex"),
        ),
        True,
    ),
    "placeholders": (files.sequence(*(files.replace(f"{i}+", "<number>", "Regex") for i in range(3))), True),
    "one long": (files.replace("a", "b" * 1025), False),
    "of nothing": (files.replace("", "b" * 1024), False),
    "of a pattern": (files.replace("a*", "b" * 1024, "Regex"), False),
    "before": ({"type": "Prepend", "prepend": "b" * 1024}, False),
    "nested": (files.sequence(files.sequence(files.replace("a", "b" * 40)), files.replace("b", "c" * 40)), False),
}  # fmt: skip


@pytest.mark.parametrize("name", GROWTHS)
def test_what_a_normalizer_may_grow_to(name: str) -> None:
    normalizer, is_taken = GROWTHS[name]
    if is_taken:
        HuggingFaceTokenizer(files.tokenizer(normalizer), 512)
    else:
        with pytest.raises(TokenizerError, match=r"the normalizer could make [1-9]e\+0[3-9] characters of one"):
            HuggingFaceTokenizer(files.tokenizer(normalizer), 512)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.bin")
    for read in (weights.read, lambda path: Directory(path).read("model.bin")):
        with pytest.raises(CheckpointError, match=r"model\.bin: should be a file, is a FIFO"):
            read(tmp_path)
    (tmp_path / "model.bin").unlink()
    (tmp_path / "model.bin").mkdir()
    with pytest.raises(CheckpointError, match=r"model\.bin: should be a file, is a folder"):
        Directory(tmp_path).read("model.bin")
    os.mkfifo(tmp_path / "fifo")
    refusal(tmp_path / "fifo", r"fifo: a FIFO, not a checkpoint")


def test_weights_that_thousands_of_layers_share(tmp_path: Path) -> None:
    variables = ctranslate2_writer.random_transformer(
        np.random.default_rng(1), encoder_layers=1, decoder_layers=0, width=128, heads=2, inner_width=128,
        source_vocabulary=24, position_table=48,
    )  # fmt: skip
    layer = [name for name in variables if name.startswith("encoder/layer_0/")]
    aliases = {name.replace("layer_0", f"layer_{i}"): name for i in range(1, 400) for name in layer}
    spec = "TransformerEncoderSpec"
    for given, taken in ((dict(list(aliases.items())[: len(layer)]), True), (aliases, False)):
        data = ctranslate2_writer.model_bytes(variables, spec=spec, revision=1, aliases=given)
        (tmp_path / "model.bin").write_bytes(data)
        (tmp_path / "config.json").write_text('{"layer_norm_epsilon": null}')
        (tmp_path / "tokenizer.json").write_bytes(files.tokenizer(None))
        if taken:
            assert weights.read(tmp_path).spec.encoder.layers == 2
        else:
            refusal(tmp_path, "numbers, more than 16 for each byte there")


def test_a_dense_module_given_twice(tmp_path: Path) -> None:
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense"}
    path = "sentence_transformers.models."
    modules = [{"type": path + kind, "path": place} for kind, place in kinds.items()]
    (tmp_path / "modules.json").write_text(json.dumps([*modules, modules[-1]]))
    refusal(tmp_path, "the dense module '2_Dense' is given twice")


COUNT = 100
SLOW_COUNT, SLOW_RUNS = 20_000, 10


def check(first: int, count: int) -> None:
    command = [sys.executable, "-W", "error", "-m", "tests.weights.run_mutations", str(first), str(count)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", errors="replace")
    lines = done.stdout.splitlines()
    faults = [line for line in lines if "FAULT" in line]
    if done.returncode or faults or not lines:
        last = lines[-1] if lines else "no seed was reached"
        pytest.fail(
            f"status {done.returncode}; {len(faults)} faults: {faults[:5]}; last: {last}\n{done.stderr[-3000:]}\n"
            "again: python -m tests.weights.run_mutations SEED 1 --keep DIR",
            pytrace=False,
        )
    assert len(lines) == count + 1, lines[-1]
    # Damage that nothing survives would test the first check alone, and damage that all survive none.
    assert count // 50 <= sum("loaded" in line for line in lines[:-1]) <= count // 2


def test_damaged_files_load_or_raise_an_error() -> None:
    check(0, COUNT)


@pytest.mark.slow
@pytest.mark.parametrize("run", range(SLOW_RUNS))
def test_many_damaged_files_load_or_raise_an_error(run: int) -> None:
    size = SLOW_COUNT // SLOW_RUNS
    check(COUNT + run * size, size)
