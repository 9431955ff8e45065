"""Checkpoints as they were read, in the cache: found again as long as nothing has changed."""

import json
import os
import pickle
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fastattn
from fastattn import ops, weights
from fastattn.encoders.cross_encoder import CrossEncoder
from fastattn.encoders.encoder import Encoder
from fastattn.errors import CheckpointError
from fastattn.loading import cache_file, model_cache
from fastattn.translation.translator import Translator
from tests.encoders.classifiers import some_pairs, some_texts, write_classifier
from tests.weights.ctranslate2.writer import write_tiny

pytestmark = pytest.mark.usefixtures("cache")
TEXTS = ["w5 w7 w9", "", *some_texts(3)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_classifier(tmp_path / "model")


def vectors(folder: Path, precision: str = "float32") -> bytes:
    return Encoder(folder, precision).encode(TEXTS).tobytes()


def cached_file(cache: Path) -> Path:
    (file,) = (cache / "packed").glob("*.checkpoint")
    return file


def load_twice(folder: Path, reads: list[Path]) -> bytes:
    """The first packs the weights, the second keeps what it has read."""
    vectors(folder)
    expected = vectors(folder)
    assert len(reads) == 2
    return expected


def assert_each_process_reads(folder: Path, reads: list[Path]) -> None:
    for count in range(1, 4):
        vectors(folder)
        assert len(reads) == count


def test_the_third_process_reads_nothing_and_each_precision_keeps_its_own(
    folder: Path, reads: list[Path], cache: Path
) -> None:
    precisions = ("float32", "bfloat16", "int8")
    expected = {precision: [vectors(folder, precision) for _ in range(2)] for precision in precisions}
    assert len(reads) == 6
    for precision, (first, second) in (*expected.items(), *expected.items()):
        assert vectors(folder, precision) == first == second
    assert len(reads) == 6
    kept = list((cache / "packed").glob("*.checkpoint"))
    assert len(kept) == 3 and not [file for file in kept if file.stat().st_mode & 0o022]


def test_each_device_keeps_its_own(folder: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Even of the same layout: what a device's operations packed may be of classes of their own."""
    monkeypatch.setitem(ops.BACKENDS, "another", "fastattn.ops.cpu")
    monkeypatch.setattr(ops, "_loaded", {})
    for count, device in enumerate(("cpu", "another"), start=1):
        found = [Encoder(folder, "float32", device=device).encode(TEXTS) for _ in range(3)]
        np.testing.assert_array_equal(found[0], found[2])
        assert len(reads) == (2, 3)[count - 1], "the second finds its weights packed"


def test_each_class_keeps_what_it_needs(folder: Path, reads: list[Path], cache: Path) -> None:
    """An Encoder has no use for the head."""
    expected = load_twice(folder, reads)
    scores = [CrossEncoder(folder, "float32").predict(some_pairs(3)) for _ in range(3)]
    assert len(reads) == 4
    np.testing.assert_array_equal(scores[0], scores[2])
    assert vectors(folder) == expected and len(reads) == 4
    assert len(list((cache / "packed").glob("*.checkpoint"))) == 2


def test_a_translator(tmp_path: Path, reads: list[Path]) -> None:
    folder = write_tiny(tmp_path / "model")
    texts = ["▁w3 ▁w5 ▁w7", "▁w9"]
    found = [Translator(folder).translate(texts) for _ in range(3)]
    assert found[0] == found[1] == found[2] and len(reads) == 2


def test_firefox_with_its_shortlist(pulled: Callable[[str], Path], tmp_path: Path, reads: list[Path]) -> None:
    """An array that a file has needs no room; what is shared by name stays one."""
    folder = Path(shutil.copytree(pulled("en-pt"), tmp_path / "model"))
    found = [Translator(folder).translate("The weather is nice today.") for _ in range(3)]
    assert found[0] == found[1] == found[2] and len(reads) == 2
    kept: list[Any] = []
    model_cache.load_or_build(folder, "auto", "Translator", lambda *parts: kept.extend(parts))
    checkpoint, read = kept[0], weights.read(folder)
    for name in ("spec", "input", "precision", "format", "details", "headless", "files"):
        assert getattr(checkpoint, name) == getattr(read, name)
    for name in ("always", "starts_V1", "targets"):
        np.testing.assert_array_equal(getattr(checkpoint.shortlist, name), getattr(read.shortlist, name))
    tensors = checkpoint.tensors
    assert tensors["decoder.projection.weight"] is tensors["decoder.embedding.weight"]


def _append(folder: Path) -> None:
    with open(folder / "config.json", "ab") as stream:
        stream.write(b"\n")


def _rewrite_at_the_same_time(folder: Path) -> None:
    file = folder / "tokenizer.json"
    times = file.stat()
    file.write_bytes(file.read_bytes())
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def _add(folder: Path) -> None:
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text("{}")


CHANGES = [_append, _rewrite_at_the_same_time, _add, lambda folder: (folder / "tokenizer_config.json").unlink()]


def test_a_folder_that_changed_is_read_again(folder: Path, reads: list[Path]) -> None:
    load_twice(folder, reads)
    for change in CHANGES:
        reads.clear()
        vectors(folder)
        assert not reads
        change(folder)
        vectors(folder)
        assert len(reads) == 1, change
        vectors(folder)
        vectors(folder)
        assert len(reads) <= 2, "and kept again"


def test_a_folder_that_changes_while_it_is_read_is_not_kept(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors(folder)  # packs the weights
    read = weights.read

    def changing(path: Path, *given: Any, **how: Any) -> Any:
        found = read(path, *given, **how)
        _add(folder)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(weights, "read", changing)
        vectors(folder)
    assert not list((cache / "packed").glob("*.checkpoint"))
    vectors(folder)
    assert cached_file(cache)


@pytest.mark.parametrize("bound", [{"SETTLED": 3_600_000_000_000}, {"MOST_FILES": 2}])
def test_what_may_change_unseen_is_not_kept(
    folder: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch, bound: dict[str, int]
) -> None:
    """A file may be written twice within a tick of its file system's clock; a folder may have much else."""
    for name, value in bound.items():
        monkeypatch.setattr(model_cache, name, value)
    assert_each_process_reads(folder, reads)


def test_a_folder_of_as_many_files_as_there_may_be_is_kept(
    folder: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_cache, "MOST_FILES", len(list(folder.iterdir())))
    expected = load_twice(folder, reads)
    assert vectors(folder) == expected and len(reads) == 2


def test_a_part_is_read_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: Path, part: str, later: bool) -> Any:
        assert (path, part, later) == (folder, "a part", True)
        raise CheckpointError("seen")

    monkeypatch.setattr(weights, "read", read)
    with pytest.raises(CheckpointError, match="seen"):
        model_cache.load_or_build(folder, "int8", "a use", lambda *made: None, part="a part")


def test_a_file_that_was_given_an_old_time_is_as_new_as_it_is(
    folder: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the time of the last change of its status, which nobody sets."""
    monkeypatch.setattr(model_cache, "SETTLED", 3_600_000_000_000)
    monkeypatch.setattr(model_cache, "_readers", list)
    for file in folder.iterdir():
        os.utime(file, (0, 0))
    assert_each_process_reads(folder, reads)


def test_a_pulled_checkpoint_that_is_found_is_marked_as_used(tmp_path: Path, cache: Path, reads: list[Path]) -> None:
    (cache / "checkpoints").mkdir()
    folder = write_classifier(cache / "checkpoints" / "some-00000000")
    load_twice(folder, reads)
    os.utime(folder, (0, 0))
    vectors(folder)
    assert len(reads) == 2 and folder.stat().st_mtime > 1e9


def test_a_folder_whose_files_lie_deeper_is_not_kept(folder: Path, reads: list[Path], cache: Path) -> None:
    deeper = folder.parent / "modules" / "a" / "b"
    deeper.parent.mkdir(parents=True)
    folder.rename(deeper)
    (deeper / "pooling").mkdir()
    pooling = {"word_embedding_dimension": 36, "pooling_mode_mean_tokens": True}
    (deeper / "pooling" / "config.json").write_text(json.dumps(pooling))
    modules = [
        {"idx": n, "name": str(n), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for n, (place, kind) in enumerate([("a/b", "Transformer"), ("a/b/pooling", "Pooling")])
    ]
    (folder.parent / "modules" / "modules.json").write_text(json.dumps(modules))
    for _ in range(3):
        vectors(folder.parent / "modules")
    assert len(reads) == 3 and not list((cache / "packed").glob("*.checkpoint"))


@pytest.fixture
def readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package, as if this process had just imported it."""
    package = tmp_path / "fastattn"
    shutil.copytree(Path(fastattn.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(fastattn.weights.__path__[0], package / "weights", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(model_cache, "__file__", str(package / "loading" / "model_cache.py"))
    monkeypatch.setattr(fastattn, "weights", SimpleNamespace(__path__=[str(package / "weights")]))
    monkeypatch.setattr(fastattn, "_imported_at", time.time_ns())
    return package


READERS = (
    "encoders/yes_or_no.py",
    "layers/parameters.py",
    "loading/balance.py",
    "models/stack.py",
    "ops/protocol.py",
    "ops/cpu/matmul.py",
    "spec/tensors.py",
    "system/records.py",
    "text/huggingface.py",
    "weights/folder.py",
    "weights/recurrent/mappings/e2k.toml",
)


def test_other_readers_of_the_same_size_and_time_read_again(
    readers: Path, folder: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fastattn, "_imported_at", 2**62)  # so that each time what is read is kept again
    load_twice(folder, reads)
    for module in READERS:
        reads.clear()
        vectors(folder)
        assert not reads, module
        file = readers / module
        times = file.stat()
        file.write_bytes(file.read_bytes().replace(b"e", b"E", 1))
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        vectors(folder)
        assert len(reads) == 1, module


def test_what_other_readers_may_have_read_is_not_kept(readers: Path, folder: Path, reads: list[Path]) -> None:
    """An upgrade under a running process, of which some modules are imported and some will be."""
    os.utime(readers / "spec" / "tensors.py", ns=(fastattn._imported_at + 2_000_000_000,) * 2)
    assert_each_process_reads(folder, reads)


def test_a_damaged_file_is_passed_over(
    folder: Path, reads: list[Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = load_twice(folder, reads)
    monkeypatch.setattr(model_cache, "_write", lambda *given: None)
    file = cached_file(cache)
    whole = file.read_bytes()

    def assert_is_passed_over(damage: object) -> None:
        count = len(reads)
        assert vectors(folder) == expected and len(reads) == count + 1, damage

    def changed(place: float) -> bytes:
        data = bytearray(whole)
        data[int(place * (len(data) - 1))] ^= 0x80
        return bytes(data)

    noise = np.random.default_rng(0).bytes(len(whole))
    contents = {"shorter": whole[:-1], "longer": whole + b"\0", "empty": b"", "noise": noise}
    contents |= {f"byte at {place}": changed(place) for place in (0, 0.01, 0.2, 0.4, 0.6, 0.8, 0.99, 1)}
    for damage, data in contents.items():
        file.write_bytes(data)
        assert_is_passed_over(damage)
    file.write_bytes(whole)
    assert vectors(folder) == expected and len(reads) == 2 + len(contents), "whole again it serves"
    file.chmod(0o666)
    assert_is_passed_over("others may write it")
    file.unlink()
    file.mkdir()
    assert_is_passed_over("a folder")


@pytest.mark.parametrize("change", ["gone", "other", "old"])
def test_the_packed_weights_count_too(folder: Path, reads: list[Path], cache: Path, change: str) -> None:
    expected = load_twice(folder, reads)
    (packed,) = (cache / "packed").glob("*.packed")
    if change == "gone":
        packed.unlink()
    elif change == "other":
        packed.write_bytes(packed.read_bytes())
    else:  # it is marked as used, once a day, so that its digest is checked again
        os.utime(packed, (0, 0))
        vectors(folder)
        assert packed.stat().st_mtime > 1e9
    assert vectors(folder) == expected and len(reads) >= 3


def test_what_nobody_used_for_thirty_days_goes_when_something_is_kept(folder: Path, cache: Path) -> None:
    vectors(folder)
    old = cache / "packed" / f"{'a' * 40}-1.checkpoint"
    old.write_bytes(b"")
    os.utime(old, (0, 0))
    vectors(folder)
    assert cached_file(cache) != old


class Harmful:
    """Its pickle calls a function."""

    def __reduce__(self) -> Any:
        return pytest.fail, ("it was called",)


def test_only_plain_data_is_made_of_a_file(folder: Path, reads: list[Path], cache: Path) -> None:
    """Even of one that has a digest."""
    expected = load_twice(folder, reads)
    for value in (Harmful(), {"statuses": Harmful()}, np.float32(1), 7, {}):
        cache_file.CachedArrays().write(cached_file(cache), "", pickle.dumps(value))
        count = len(reads)
        assert vectors(folder) == expected and len(reads) == count + 1


def test_a_model_that_asks_for_more_reads_it(folder: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = load_twice(folder, reads)
    find = model_cache._find

    def lacking(*arguments: Any) -> Any:
        kept = find(*arguments)
        assert kept is not None
        kept[0].tensors = {name: kept[0].tensors[name] for name in list(kept[0].tensors)[:3]}
        return kept

    monkeypatch.setattr(model_cache, "_find", lacking)
    assert vectors(folder) == expected and len(reads) == 3


def test_another_layout_of_packed_weights(folder: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another CPU that has the same cache folder."""
    expected = load_twice(folder, reads)
    monkeypatch.setattr("fastattn.ops.cpu.packed_layout", lambda precision: f"{precision}-another")
    assert vectors(folder) == expected and len(reads) == 3


def test_what_is_loaded_is_marked_as_used(
    folder: Path, reads: list[Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a day: the kept file and that of the packed weights, which is then looked at whole again."""
    expected = load_twice(folder, reads)
    files = sorted((cache / "packed").iterdir())
    before = [path.stat().st_mtime_ns for path in files]
    assert vectors(folder) == expected and [path.stat().st_mtime_ns for path in files] == before
    later = time.time() + 2 * 86_400
    monkeypatch.setattr(time, "time", lambda: later)
    assert vectors(folder) == expected and len(reads) == 2
    assert all(path.stat().st_mtime_ns > time for path, time in zip(files, before, strict=True)) and len(files) == 2
    assert vectors(folder) == expected and len(reads) == 3
