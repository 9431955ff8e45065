"""Files that ask for much memory or time, and files damaged at random: refused by name, or read, within both."""

import contextlib
import gzip
import io
import json
import os
import random
import re
import subprocess
import sys
import zipfile
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
from tests.messages import check, refused
from tests.text.spm_bytes import BPE, PLAIN, UNIGRAM, USER, charsmap, field, piece
from tests.weights.containers import pytorch_writer as torch
from tests.weights.containers.safetensors_writer import with_header
from tests.weights.ctranslate2 import writer as ctranslate2_writer
from tests.weights.forked import run_forked
from tests.weights.gguf import models as gguf_models
from tests.weights.gguf.writer import Stored, Value, gguf_bytes

HANG = 40  # seconds: what is read here takes about one
STEPS = 40  # a byte


def memorised(value: bytes, number: int) -> bytes:
    return value + b"q" + bytes([number])


def pickle_of_shared_list(pairs: int, times: int) -> bytes:
    """A list of pairs that is given once, and made into a dict again and again."""
    items = b"".join(torch.text(f"{i:05}") + b"N\x86" for i in range(pairs))
    begin = memorised(torch.name("collections", "OrderedDict"), 0) + memorised(b"](" + items + b"e", 1)
    return torch.zip_bytes(torch.pickled(begin + b"h\0h\1\x85R" * times), {})


def pickle_of_shared_sizes(sizes: int, times: int) -> bytes:
    """The sizes of a tensor, of very many dimensions, that are checked again and again."""
    begin = memorised(torch.name("torch", "Size"), 0) + memorised(b"(" + b"K\1" * sizes + b"t", 1)
    return torch.zip_bytes(torch.pickled(begin + b"h\0h\1\x85R" * times), {})


def pickle_of_long_key(length: int, times: int) -> bytes:
    """Tensors of one storage, whose very long name is put together again for each."""
    identity = (
        torch.STORAGE + torch.name("torch", "FloatStorage") + torch.text("k" * length) + torch.text("cpu") + b"K\0"
    )
    tensor = memorised(torch.tensor(b"(" + identity + b"tQ", (0,)), 0)
    more = b"".join(torch.text(f"{i}") + b"h\0" for i in range(times))
    return torch.zip_bytes(torch.pickled(b"}(" + torch.text("a") + tensor + more + b"u"), {"k" * length: b""})


def npz_of_shared_bytes(members: int, size: int) -> bytes:
    """Arrays, one in eighty bytes not zero, whose entries in the archive's list all lead to the same packed bytes."""
    array, archive = io.BytesIO(), io.BytesIO()
    np.save(array, np.frombuffer(random.Random(1).randbytes(size // 80).ljust(size, b"\0"), np.float32))
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writer:
        writer.writestr("00000.npy", array.getvalue())
        entry = writer.getinfo("00000.npy")
        for i in range(1, members):
            shared = zipfile.ZipInfo(f"{i:05}.npy")
            shared.compress_type, shared.header_offset, shared.CRC = entry.compress_type, 0, entry.CRC
            shared.compress_size, shared.file_size = entry.compress_size, entry.file_size
            writer.filelist.append(shared)
    return archive.getvalue()


def spm_of_rule(table: bytes) -> bytes:
    return PLAIN + field(3, field(2, table))


def spm(pieces: bytes, model_type: int = UNIGRAM) -> bytes:
    return PLAIN + pieces + field(2, field(3, model_type))


# User-defined pieces that all begin with the same letter.
SYMBOLS = b"".join(piece(f"a{i:06}", 0.0, USER) for i in range(20_000))
# That a text of nothing but "a" goes along with everywhere, and nearly to its end.
LONG_PIECE = piece("a" * 20_000 + "b")


def tokenizer(normalizer: object) -> bytes:
    added = [
        {"id": 0, "content": "[UNK]", "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    ]
    model = {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1}, "unk_token": "[UNK]"}
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": normalizer}
    whole |= {"pre_tokenizer": None, "post_processor": None, "decoder": None, "model": model}
    return json.dumps(whole).encode()


def replace(pattern: str, content: str, kind: str = "String") -> dict[str, object]:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def sequence(*normalizers: dict[str, object]) -> dict[str, object]:
    return {"type": "Sequence", "normalizers": list(normalizers)}


def gguf_of_long_tokens(count: int, length: int) -> bytes:
    """A model whose tokens can all be cut in two tokens anywhere."""
    metadata, tensors = gguf_models.contents("llama")
    tokens = [prefix + "a" * i for prefix in "abcdefgh"[: count // length] for i in range(1, length + 1)]
    names = {"tokens": tokens, "scores": Value("f32", [0.0] * len(tokens)), "model": "llama"}
    metadata |= {f"tokenizer.ggml.{name}": value for name, value in names.items()}
    metadata["tokenizer.ggml.token_type"] = Value("i32", [1] * len(tokens))
    for name in ("token_embd.weight", "output.weight"):
        tensors[name] = Stored(0, (len(tokens), 16), bytes(64 * len(tokens)))
    return gguf_bytes(metadata, tensors)


CHAIN = sequence(*[replace("a", "a" * 10)] * 9)
LINK = b'<a href="wanted.zip">'
DIGITS = f'{{"a": {{"dtype": "I8", "shape": [{"9" * 4300}, {"9" * 4300}], "data_offsets": [0, 0]}}}}'.encode()
FOUR = torch.storage("float32", "0", 4)
NEVER = torch.dict_of({"a": torch.tensor(FOUR, (1, 2, 2), (1 << 62, 1, 2))})


class Case(NamedTuple):
    """A reader of run_hostile.py, its file, the steps a byte (0: none are counted), and a text for a tokenizer."""

    reader: str
    make: Callable[[], bytes]
    steps: int = STEPS
    text: str = ""


CASES = {
    "a list that a pickle repeats": Case("pytorch", lambda: pickle_of_shared_list(10_000, 10_000)),
    "sizes that a pickle repeats": Case("pytorch", lambda: pickle_of_shared_sizes(50_000, 10_000)),
    "a long name of a storage": Case("pytorch", lambda: pickle_of_long_key(60_000, 100_000)),
    "a stride that is never taken": Case("pytorch", lambda: torch.zip_bytes(torch.pickled(NEVER), {"0": bytes(16)})),
    "members that share bytes": Case("marian npz", lambda: npz_of_shared_bytes(8000, 1 << 20), 0),
    "a gzipped shortlist": Case("shortlist", lambda: gzip.compress(b"a a 1\n" * 3_000_000), 0),
    "rules that go round": Case("spm", lambda: spm_of_rule(charsmap(ord("a"), b"b\0", False)), 300, "a" * 2000),
    "a rule that gives much": Case(
        "spm", lambda: spm_of_rule(charsmap(1, b"b" * 300_000 + b"\0", True)), 0, "a" * 2000
    ),
    "symbols, unigram": Case("spm", lambda: spm(SYMBOLS), STEPS, "a" * 500),
    "symbols, bpe": Case("spm", lambda: spm(SYMBOLS, BPE), STEPS, "a" * 500),
    "symbols, characters": Case("spm", lambda: spm(SYMBOLS, 4), STEPS, "a" * 500),
    "a long piece, unigram": Case("spm", lambda: spm(LONG_PIECE), STEPS, "a" * 5000),
    "a long piece, bpe": Case("spm", lambda: spm(LONG_PIECE, BPE), STEPS, "a" * 5000),
    "replacements upon replacements": Case("tokenizer", lambda: tokenizer(CHAIN), 0, "aaa"),
    "anchors that stay open": Case("page", lambda: LINK + b"x</a>" + b"<a " * 30_000),
    "quotes that stay open": Case("page", lambda: LINK + b"<a \"'" * 50_000),
    "comments that stay open": Case("page", lambda: LINK + b"<!--" * 50_000),
    "many quotes": Case("page", lambda: LINK + b"<a " + b'""' * 100_000),
    "a line that a text repeats": Case("vocabulary map", lambda: b"a\t" + b"b " * 50_000 + b"\n", STEPS, "a " * 500),
    "a long n-gram": Case("vocabulary map", lambda: b" ".join([b"a"] * 5000) + b"\tb\n", STEPS, "a " * 3000),
    "sizes of thousands of digits": Case("safetensors", lambda: with_header(DIGITS, b"")),
    "a GGUF file of empty texts": Case("gguf", lambda: gguf_bytes({"a": [""] * 30_000}, {})),
    "a GGUF file of keys": Case("gguf", lambda: gguf_bytes({f"{i:x}": Value("u8", 1) for i in range(10_000)}, {})),
    "a GGUF file of tokens that can be cut anywhere": Case("gguf", lambda: gguf_of_long_tokens(2000, 250)),
}


@pytest.mark.parametrize("name", CASES)
def test_hostile_files(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    (tmp_path / "file.html").write_bytes(case.make())
    (tmp_path / "text").write_text(case.text, "utf-8")
    arguments = (case.reader, str(tmp_path / "file.html"), str(case.steps), str(tmp_path / "text"))
    done = run_forked("-m", "tests.weights.run_hostile", *arguments, timeout=HANG)
    assert done.returncode == 0, done.stderr[-3000:]
    check(re.sub(r"\d{6,}", "N", done.stdout.strip()))  # sizes depend on zlib


LIKE_ALBERT = sequence(
    replace("``", '"'), replace("''", '"'), {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
    replace(" {2,}", " ", "Regex"),
)  # fmt: skip
GROWTHS = {
    "none": (None, True),
    "Llama": (sequence({"type": "Prepend", "prepend": "\u2581"}, replace(" ", "\u2581")), True),
    "ALBERT": (LIKE_ALBERT, True),
    "placeholders": (sequence(*(replace(f"{i}+", "<number>", "Regex") for i in range(3))), True),
    "one long": (replace("a", "b" * 1025), False),
    "of nothing": (replace("", "b" * 1024), False),
    "of a pattern": (replace("a*", "b" * 1024, "Regex"), False),
    "before": ({"type": "Prepend", "prepend": "b" * 1024}, False),
    "nested": (sequence(sequence(replace("a", "b" * 40)), replace("b", "c" * 40)), False),
}


@pytest.mark.parametrize("name", GROWTHS)
def test_what_a_normalizer_may_grow_to(name: str) -> None:
    normalizer, is_taken = GROWTHS[name]
    with contextlib.nullcontext() if is_taken else refused(TokenizerError):
        HuggingFaceTokenizer(tokenizer(normalizer), 512)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.bin")
    (tmp_path / "below" / "model.bin").mkdir(parents=True)
    for read in (weights.read, lambda path: Directory(path).read("model.bin")):
        with refused(CheckpointError, str(tmp_path)):
            read(tmp_path)
    with refused(CheckpointError, str(tmp_path)):
        Directory(tmp_path / "below").read("model.bin")
    with refused(CheckpointError, str(tmp_path)):
        weights.read(tmp_path / "model.bin")


def test_weights_that_thousands_of_layers_share(tmp_path: Path) -> None:
    variables = ctranslate2_writer.random_transformer(
        np.random.default_rng(1), encoder_layers=1, decoder_layers=0, width=128, heads=2, inner_width=128,
        source_vocabulary=24, position_table=48,
    )  # fmt: skip
    layer = [name for name in variables if name.startswith("encoder/layer_0/")]
    aliases = {name.replace("layer_0", f"layer_{i}"): name for i in range(1, 400) for name in layer}
    (tmp_path / "config.json").write_text('{"layer_norm_epsilon": null}')
    (tmp_path / "tokenizer.json").write_bytes(tokenizer(None))
    how = {"spec": "TransformerEncoderSpec", "revision": 1}
    ctranslate2_writer.write_model(tmp_path, variables, aliases=dict(list(aliases.items())[: len(layer)]), **how)
    assert weights.read(tmp_path).spec.encoder.layers == 2
    ctranslate2_writer.write_model(tmp_path, variables, aliases=aliases, **how)
    with refused(CheckpointError, str(tmp_path)):
        weights.read(tmp_path)


def test_a_dense_module_given_twice(tmp_path: Path) -> None:
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense"}
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": place} for kind, place in kinds.items()]
    (tmp_path / "modules.json").write_text(json.dumps([*modules, modules[-1]]))
    with refused(CheckpointError, str(tmp_path)):
        weights.read(tmp_path)


COUNT = 100
SLOW_COUNT, SLOW_RUNS = 20_000, 10


def damage(first: int, count: int) -> None:
    command = [sys.executable, "-W", "error", "-m", "tests.weights.run_mutations", str(first), str(count)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", errors="replace")
    *lines, last = done.stdout.splitlines() or ["no seed was reached"]
    again = f"{last}\n{done.stderr[-3000:]}\nagain: python -m tests.weights.run_mutations SEED 1 DIR"
    assert (done.returncode, [line for line in lines if "FAULT" in line], len(lines)) == (0, [], count), again
    # Damage that nothing survives would test the first check alone, and damage that all survive none.
    assert count // 50 <= sum("loaded" in line for line in lines) <= count // 2


def test_damaged_files_load_or_raise_an_error() -> None:
    damage(0, COUNT)


@pytest.mark.slow
@pytest.mark.parametrize("run", range(SLOW_RUNS))
def test_many_damaged_files_load_or_raise_an_error(run: int) -> None:
    size = SLOW_COUNT // SLOW_RUNS
    damage(COUNT + run * size, size)
