"""Checkpoints as they were read, in the cache: found again as long as nothing has changed."""

import json
import os
import pickle
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import fastattn
from fastattn import Encoder, Generator, ops, weights
from fastattn.encoders.cross_encoder import CrossEncoder
from fastattn.errors import CheckpointError
from fastattn.loading import cache_file, model_cache
from fastattn.translation.translator import Translator
from tests.encoders.classifiers import some_pairs, some_texts, write_classifier
from tests.weights.gguf import models

pytestmark = pytest.mark.usefixtures("cache")
TEXTS = ["w5 w7 w9", "", *some_texts(3)]
AN_HOUR = 3_600_000_000_000


@pytest.fixture
def folder(tmp_path):
    return write_classifier(tmp_path / "model")


def vectors(folder, precision="float32", **options):
    return Encoder(folder, precision, **options).encode(TEXTS).tobytes()


def kept_files(cache):
    return list((cache / "packed").glob("*.checkpoint"))


def load_twice(folder, reads):
    """The first packs the weights, the second keeps what it has read."""
    found = [vectors(folder) for _ in range(2)]
    assert found[0] == found[1] and len(reads) == 2
    return found[1]


def reads_of_three(folder, reads):
    """How often three processes have read the folder, after each of them."""
    return [len(reads) for _ in range(3) if vectors(folder)]


def test_the_third_process_reads_nothing_and_each_precision_keeps_its_own(folder, reads, cache):
    precisions = ("float32", "bfloat16", "int8")
    expected = {precision: [vectors(folder, precision) for _ in range(2)] for precision in precisions}
    assert len(reads) == 6
    for precision, (first, second) in (*expected.items(), *expected.items()):
        assert vectors(folder, precision) == first == second
    kept = kept_files(cache)
    assert (len(reads), len(kept)) == (6, 3) and not [file for file in kept if file.stat().st_mode & 0o022]


def test_each_device_keeps_its_own(folder, reads, monkeypatch):
    """Even of the same layout: what a device's operations packed may be of classes of their own."""
    monkeypatch.setitem(ops.BACKENDS, "another", "fastattn.ops.cpu")
    monkeypatch.setattr(ops, "_backends", {})
    for device, count in (("cpu", 2), ("another", 3)):  # the second finds its weights packed
        assert len({vectors(folder, device=device) for _ in range(3)}) == 1 and len(reads) == count


def test_each_class_keeps_what_it_needs(folder, reads, cache):
    """An Encoder has no use for the head."""
    expected = load_twice(folder, reads)
    scores = [CrossEncoder(folder, "float32").predict(some_pairs(3)) for _ in range(3)]
    np.testing.assert_array_equal(scores[0], scores[2])
    assert vectors(folder) == expected and (len(reads), len(kept_files(cache))) == (4, 2)


@pytest.fixture
def language_model(tmp_path):
    """Its table, of Q6_K, is its projection too."""
    data = models.of_blocks("Q6_K", 256, 0.0005, ffn_up="Q4_K", attn_v="Q4_1")
    (tmp_path / "model.gguf").write_bytes(data)
    return tmp_path / "model.gguf"


@pytest.mark.parametrize("precision", ["int4", "int8", "bfloat16"])
def test_a_generator(language_model, reads, precision):
    found = [Generator(language_model, precision).generate(["w1 w2"], max_new_tokens=3) for _ in range(3)]
    assert found[0] == found[1] == found[2] and len(reads) == 2


def test_an_encoder_beside_a_generator(language_model, reads):
    """Their layers have other names, so each has its own packed file; the encoder's int8 is balanced."""
    for _ in range(3):
        Generator(language_model, "int4")
        Encoder(language_model, "int4")
    assert len(reads) == 4
    np.testing.assert_array_equal(*(Encoder(language_model, "int8").encode(["w1 w2"]) for _ in range(2)))


def test_firefox_with_its_shortlist(pulled, tmp_path, reads):
    """An array that a file has needs no room; what is shared by name stays one."""
    folder = Path(shutil.copytree(pulled("en-pt"), tmp_path / "model"))
    found = [Translator(folder).translate("The weather is nice today.") for _ in range(3)]
    assert found[0] == found[1] == found[2] and len(reads) == 2
    kept = []
    model_cache.load_or_build(folder, "auto", "Translator", lambda *parts: kept.extend(parts))
    checkpoint, read = kept[0], weights.read(folder)
    for name in ("spec", "input", "precision", "format", "details", "headless", "files"):
        assert getattr(checkpoint, name) == getattr(read, name)
    for name in ("always", "starts_V1", "targets"):
        np.testing.assert_array_equal(getattr(checkpoint.shortlist, name), getattr(read.shortlist, name))
    assert checkpoint.tensors["decoder.projection.weight"] is checkpoint.tensors["decoder.embedding.weight"]


def change_at_the_same_time(file, change=lambda data: data):
    times = file.stat()
    file.write_bytes(change(file.read_bytes()))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def add(folder):
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text("{}")


CHANGES = {
    "longer": lambda folder: (folder / "config.json").write_bytes((folder / "config.json").read_bytes() + b"\n"),
    "at the same time": lambda folder: change_at_the_same_time(folder / "tokenizer.json"),
    "one more": add,
    "one less": lambda folder: (folder / "tokenizer_config.json").unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_folder_that_changed_is_read_again(folder, reads, change):
    load_twice(folder, reads)
    CHANGES[change](folder)
    assert reads_of_three(folder, reads) in ([3, 3, 3], [3, 4, 4]), "and kept again"


def test_a_folder_that_changes_while_it_is_read_is_not_kept(folder, cache, monkeypatch):
    vectors(folder)  # packs the weights
    read = weights.read

    def changing(*given, **how):
        found = read(*given, **how)
        add(folder)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(weights, "read", changing)
        vectors(folder)
    assert kept_files(cache) == []
    vectors(folder)
    assert len(kept_files(cache)) == 1


@pytest.mark.parametrize("settled, spare, count", [(AN_HOUR, 0, 3), (-1_000_000_000, -1, 3), (-1_000_000_000, 0, 2)])
def test_what_may_change_unseen_is_not_kept(folder, reads, monkeypatch, settled, spare, count):
    """A file may be written twice within a tick of its file system's clock; a folder may have much else."""
    monkeypatch.setattr(model_cache, "SETTLED_NS", settled)
    monkeypatch.setattr(model_cache, "MOST_FILES", len(list(folder.iterdir())) + spare)
    assert reads_of_three(folder, reads) == [1, 2, count]


def test_a_file_that_was_given_an_old_time_is_as_new_as_it_is(folder, reads, monkeypatch):
    """By the time of the last change of its status, which nobody sets."""
    monkeypatch.setattr(model_cache, "SETTLED_NS", AN_HOUR)
    monkeypatch.setattr(model_cache, "_readers", list)
    for file in folder.iterdir():
        os.utime(file, (0, 0))
    assert reads_of_three(folder, reads) == [1, 2, 3]


def test_a_part_is_read_alone(folder, monkeypatch):
    def read(path, part, later):
        assert (path, part, later) == (folder, "a part", True)
        raise CheckpointError("seen")

    monkeypatch.setattr(weights, "read", read)
    with pytest.raises(CheckpointError, match="seen"):
        model_cache.load_or_build(folder, "int8", "a use", lambda *made: None, part="a part")


def test_a_pulled_checkpoint_that_is_found_is_marked_as_used(cache, reads):
    (cache / "checkpoints").mkdir()
    folder = write_classifier(cache / "checkpoints" / "some-00000000")
    load_twice(folder, reads)
    os.utime(folder, (0, 0))
    vectors(folder)
    assert len(reads) == 2 and folder.stat().st_mtime > 1e9


def test_a_folder_whose_files_lie_deeper_is_not_kept(folder, reads, cache):
    top, deeper = folder.parent / "modules", folder.parent / "modules" / "a" / "b"
    deeper.parent.mkdir(parents=True)
    folder.rename(deeper)
    (deeper / "pooling").mkdir()
    pooling = {"word_embedding_dimension": 36, "pooling_mode_mean_tokens": True}
    (deeper / "pooling" / "config.json").write_text(json.dumps(pooling))
    modules = [{"idx": 0, "name": "0", "path": "a/b", "type": "sentence_transformers.models.Transformer"}]
    modules += [{"idx": 1, "name": "1", "path": "a/b/pooling", "type": "sentence_transformers.models.Pooling"}]
    (top / "modules.json").write_text(json.dumps(modules))
    assert reads_of_three(top, reads) == [1, 2, 3] and kept_files(cache) == []


@pytest.fixture
def readers(tmp_path, monkeypatch):
    """A copy of the package, as if this process had just imported it."""
    package = tmp_path / "fastattn"
    for source, target in ((Path(fastattn.__file__).parent, package), (weights.__path__[0], package / "weights")):
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(model_cache, "__file__", str(package / "loading" / "model_cache.py"))
    monkeypatch.setattr(fastattn, "weights", SimpleNamespace(__path__=[str(package / "weights")]))
    monkeypatch.setattr(fastattn, "_imported_at", time.time_ns())
    return package


READERS = (
    "encoders/cross_encoder.py", "layers/parameters.py", "loading/balance.py", "models/stack.py", "ops/protocol.py",
    "ops/cpu/matmul.py", "spec/tensors.py", "system/records.py", "text/huggingface.py", "weights/folder.py",
    "weights/recurrent/mappings/e2k.toml",
)  # fmt: skip


def test_other_readers_of_the_same_size_and_time_read_again(readers, folder, reads, monkeypatch):
    monkeypatch.setattr(fastattn, "_imported_at", 2**62)  # so that each time what is read is kept again
    load_twice(folder, reads)
    for module in READERS:
        reads.clear()
        vectors(folder)
        assert not reads, module
        change_at_the_same_time(readers / module, lambda data: data.replace(b"e", b"E", 1))
        vectors(folder)
        assert len(reads) == 1, module


def test_what_other_readers_may_have_read_is_not_kept(readers, folder, reads):
    """An upgrade under a running process, of which some modules are imported and some will be."""
    os.utime(readers / "spec" / "tensors.py", ns=(fastattn._imported_at + 2_000_000_000,) * 2)
    assert reads_of_three(folder, reads) == [1, 2, 3]


class Harmful:
    """Its pickle calls a function."""

    def __reduce__(self):
        return pytest.fail, ("it was called",)


def test_a_damaged_file_is_passed_over(folder, reads, cache, monkeypatch):
    """Nor is anything but plain data made of one, even where it has a digest."""
    expected = load_twice(folder, reads)
    monkeypatch.setattr(model_cache, "_write", lambda *given: None)
    (file,) = kept_files(cache)
    whole = file.read_bytes()

    def is_read(damage, count=1):
        reads.clear()
        assert vectors(folder) == expected and len(reads) == count, damage

    def changed(place):
        at = int(place * (len(whole) - 1))
        return whole[:at] + bytes([whole[at] ^ 0x80]) + whole[at + 1 :]

    contents = {"shorter": whole[:-1], "longer": whole + b"\0", "empty": b""}
    contents |= {"noise": np.random.default_rng(0).bytes(len(whole))}
    contents |= {f"byte at {place}": changed(place) for place in (0, 0.01, 0.2, 0.4, 0.6, 0.8, 0.99, 1)}
    for damage, data in contents.items():
        file.write_bytes(data)
        is_read(damage)
    for value in (Harmful(), {"statuses": Harmful()}, np.float32(1), 7, {}):
        cache_file.CachedArrays().write(file, "", pickle.dumps(value))
        is_read(value)
    file.write_bytes(whole)
    is_read("whole again", 0)
    file.chmod(0o666)
    is_read("others may write it")
    file.unlink()
    file.mkdir()
    is_read("a folder")


@pytest.mark.parametrize("change", ["gone", "written anew", "of another layout"])
def test_the_packed_weights_count_too(folder, reads, cache, monkeypatch, change):
    """Another CPU that has the same cache folder has another layout."""
    expected = load_twice(folder, reads)
    (packed,) = (cache / "packed").glob("*.packed")
    if change == "gone":
        packed.unlink()
    elif change == "written anew":
        packed.write_bytes(packed.read_bytes())
    else:
        monkeypatch.setattr("fastattn.ops.cpu.packed_layout", lambda precision: f"{precision}-another")
    assert vectors(folder) == expected and len(reads) == 3


def test_a_model_that_asks_for_more_reads_it(folder, reads, monkeypatch):
    expected = load_twice(folder, reads)
    find = model_cache._find

    def lacking(*arguments):
        kept = find(*arguments)
        kept[0].tensors = {name: kept[0].tensors[name] for name in list(kept[0].tensors)[:3]}
        return kept

    monkeypatch.setattr(model_cache, "_find", lacking)
    assert vectors(folder) == expected and len(reads) == 3


def test_what_is_loaded_is_marked_as_used(folder, reads, cache, monkeypatch):
    """Once a day: the kept file and that of the packed weights, which is then looked at whole again."""
    expected = load_twice(folder, reads)
    files = sorted((cache / "packed").iterdir())
    before = [path.stat().st_mtime_ns for path in files]
    assert vectors(folder) == expected and [path.stat().st_mtime_ns for path in files] == before
    later = time.time() + 2 * 86_400
    monkeypatch.setattr("fastattn.system.cache_folder.time", SimpleNamespace(time=lambda: later))
    assert vectors(folder) == expected and len(reads) == 2
    assert all(path.stat().st_mtime_ns > time for path, time in zip(files, before, strict=True)) and len(files) == 2
    assert vectors(folder) == expected and len(reads) == 3
