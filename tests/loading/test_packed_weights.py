"""Packed weights in the cache: mapped when they are there, made again when they are not what they should be."""

import dataclasses
import mmap
import os
import pickle
import subprocess
import sys
from contextlib import nullcontext
from unittest.mock import DEFAULT, Mock

import numpy as np
import pytest

from fastattn import Encoder
from fastattn.layers.parameters import NeededTensors
from fastattn.loading import cache_file
from fastattn.loading.model_cache import PackedWeights, content_hash
from fastattn.ops import cpu as operations
from fastattn.spec.quantized import QuantizedTensor
from fastattn.system.cache_folder import cache_root
from fastattn.system.memory import mapping_of
from tests.loading.caches import empty_cache


@pytest.fixture
def source(tmp_path, monkeypatch):
    empty_cache(tmp_path / "cache", monkeypatch)
    path = tmp_path / "weights"
    path.write_bytes(bytes(range(256)) * 10)
    return path


def layer(precision, seed=0):
    rng = np.random.default_rng(seed)
    weight, bias = rng.standard_normal((70, 33), np.float32), rng.standard_normal(70, np.float32)
    return lambda: operations.pack_linear(weight, bias, precision)


def with_a_layer(source, precision="int8", shape=(70, 33), make=None):
    """Packed weights of one layer, which is made; (them, the layer)."""
    packed = PackedWeights([source], precision)
    return packed, packed.linear("a", shape, make or layer(precision))


def of_ones(*shape, precision="int8"):
    return lambda: operations.pack_linear(np.ones(shape, np.float32), None, precision)


def written(source, precision="int8", shape=(70, 33), name="a"):
    """The layer that is mapped from the file."""
    return PackedWeights([source], precision).linear(name, shape, lambda: pytest.fail("packed a second time"))


def assert_equal(one, other):
    for (name, a), (_, b) in zip(one.arrays().items(), other.arrays().items(), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)
        assert a.dtype == b.dtype


def test_what_is_packed_anew_leaves_the_other_layers(source):
    """Of another shape; what was there beside it need not be made again."""
    for shape in ((70, 33), (70, 17), (70, 17)):
        packed, _ = with_a_layer(source)
        packed.linear("b", shape, of_ones(*shape))
        made = not packed.is_whole
        packed.save()
    assert not made


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_the_second_load_maps_what_the_first_wrote(source, precision):
    first, made = with_a_layer(source, precision)
    first.save()
    again = written(source, precision)
    assert_equal(made, again)
    x = np.ones((3, 33), np.float32)
    np.testing.assert_array_equal(operations.linear(x, made), operations.linear(x, again))
    assert [path.name for path in first.path.parent.iterdir()] == [first.path.name]


def test_a_given_input_scale_is_kept(source):
    weight = QuantizedTensor(np.ones((70, 33), np.int8), np.ones(70, np.float32), 2.5)
    first, made = with_a_layer(source, make=lambda: operations.pack_linear(weight, None, "int8"))
    first.save()
    assert written(source).input_scale.tolist() == made.input_scale.tolist() == [2.5]


def changed_at(data, place, size):
    """A file whose header is whole, which would give wrong results in silence: a bit, or zeros."""
    at = int(len(data) * place)
    damage = bytes([data[at] ^ 4]) if size == 1 else bytes(min(size, len(data) - at))
    return data[:at] + damage + data[at + size :]


def test_a_file_that_is_not_what_it_should_be_is_made_again(source):
    wide = (700, 33)
    first, _ = with_a_layer(source, shape=wide, make=of_ones(*wide))
    first.save()
    whole = first.path.read_bytes()
    changed = [changed_at(whole, place, size) for place in (0.2, 0.5, 0.9) for size in (1, 4096)]
    for damaged in (whole[: len(whole) // 2], b"", bytes(range(200)), *changed):
        first.path.write_bytes(damaged)
        with pytest.warns(UserWarning, match="are damaged; it is made anew"):
            second, made = with_a_layer(source, shape=wide, make=of_ones(*wide))
        assert_equal(made, of_ones(*wide)())
        second.save()
        written(source, shape=wide)


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_a_file_that_others_may_write_is_not_believed(source):
    first, _ = with_a_layer(source)
    first.save()
    first.path.chmod(0o666)
    with pytest.warns(UserWarning, match="may have been written by others; it is made anew"):
        second, _ = with_a_layer(source)
    second.save()
    assert first.path.stat().st_mode & 0o022 == 0
    written(source)


def test_what_is_old_goes_when_something_is_packed_and_what_is_unfinished_at_once(source):
    folder = cache_root() / "packed"
    folder.mkdir(parents=True)
    old = [folder / f"{'a' * 40}-{rest}" for rest in ("int8-6.packed", "1.checkpoint")]
    for path in (*old, folder / "mine.packed", folder / "a.00000000.part"):
        path.touch()
        os.utime(path, (0, 0))
    packed, _ = with_a_layer(source)
    assert {*folder.iterdir()} == {*old, folder / "mine.packed"}
    packed.save()
    assert {*folder.iterdir()} == {packed.path, folder / "mine.packed"}


def test_it_is_written_in_pieces_that_lie_in_huge_pages(source, monkeypatch):
    sizes, write_whole = [], cache_file.write_whole

    def counted(stream):
        counting = Mock(wraps=stream)
        counting.name = stream.name
        counting.write.side_effect = lambda data: sizes.append(len(data)) or DEFAULT
        return counting

    monkeypatch.setattr(cache_file, "write_whole", lambda path, write: write_whole(path, lambda s: write(counted(s))))
    packed, _ = with_a_layer(source, "float32", (1030, 1030), of_ones(1030, 1030, precision="float32"))
    packed.save()
    *pieces, last, digest = sizes
    assert pieces == [2 << 20] * 2 and digest == 32
    assert packed.path.stat().st_size == sum(sizes) and last < 2 << 20


def test_other_content_another_precision_another_file(source):
    names = {PackedWeights([source], precision).path for precision in ("float32", "bfloat16", "int8")}
    source.write_bytes(source.read_bytes() + b"x")
    names.add(PackedWeights([source], "int8").path)
    assert len(names) == 4


def test_the_hash_covers_every_byte_and_where_one_file_ends(tmp_path):
    path = tmp_path / "large"
    data = bytearray(9 << 20)
    path.write_bytes(data)
    before = content_hash([path])
    for at in (0, len(data) // 2, len(data) - 1):
        data[at] ^= 1
        path.write_bytes(data)
        assert content_hash([path]) != before
        data[at] ^= 1
    some, empty = tmp_path / "some", tmp_path / "empty"
    some.write_bytes(b"bytes")
    empty.write_bytes(b"")
    assert len({content_hash(files) for files in ([some], [some, empty], [empty, some])}) == 3


@dataclasses.dataclass
class Foreign:
    """Plain data, but none of the package's."""

    number: int = 1


def test_no_class_but_the_packages_own_plain_data_is_made_of_a_file(tmp_path):
    path = tmp_path / "some.packed"
    for value in (Foreign(), np.float32, NeededTensors, NeededTensors({}, {})):
        arrays = cache_file.CachedArrays()
        arrays.write(path, "here", arrays.pickled(value))
        refused = pytest.raises(pickle.UnpicklingError, match="none of a checkpoint's classes")
        with refused if isinstance(value, Foreign) or value is np.float32 else nullcontext():
            cache_file.read(path).load()


FULL = Mock(side_effect=OSError(28, "No space left on device"))


def test_a_full_disk_or_a_cache_that_cannot_be_a_folder_costs_only_time(source, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setattr(cache_file, "write_whole", FULL)
        packed, _ = with_a_layer(source)
        packed.save()
    assert not list(packed.path.parent.iterdir())
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FASTATTN_CACHE", str(tmp_path / "file"))
    packed, made = with_a_layer(source)
    assert_equal(made, layer("int8")())
    packed.save()


LARGE = (4096, 33)  # of which the panels are large


def large(seed=0):
    weight_FD = np.random.default_rng(seed).standard_normal(LARGE, np.float32)
    return lambda: operations.pack_linear(weight_FD, None, "int8")


def assert_saved(packed, source, layers):
    packed.save()
    for seed, one in enumerate(layers):
        assert_equal(one, large(seed)())
        assert_equal(written(source, "int8", LARGE, str(seed)), one)


def is_mapped(array):
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return isinstance(array, mmap.mmap)


@pytest.mark.skipif(os.name == "nt", reason="POSIX renames what is mapped")
def test_a_large_layer_is_in_the_file_before_the_next_is_made(source):
    packed = PackedWeights([source], "int8")
    made = [packed.linear(str(seed), LARGE, large(seed)) for seed in range(2)]
    assert all(is_mapped(one.panels_PSN) and not is_mapped(one.bias) for one in made)
    (part,) = packed.path.parent.iterdir()
    assert part.stat().st_size >= 2 * made[0].panels_PSN.nbytes
    assert_saved(packed, source, made)


@pytest.mark.skipif(os.name == "nt", reason="POSIX renames what is mapped")
def test_a_disk_that_is_full_after_a_layer_costs_only_time(source, monkeypatch):
    monkeypatch.setattr(cache_file, "WINDOW_BYTES", 0)  # each array is mapped by itself
    packed = PackedWeights([source], "int8")
    first = packed.linear("0", LARGE, large(0))
    with monkeypatch.context() as patch:
        patch.setattr(cache_file, "FileMap", FULL)
        second = packed.linear("1", LARGE, large(1))
    assert is_mapped(first.panels_PSN) and not is_mapped(second.panels_PSN)
    assert not list(packed.path.parent.iterdir())
    assert_saved(packed, source, (first, second))  # there is room again


def test_a_model_that_cannot_be_made_leaves_no_file(source):
    packed, _ = with_a_layer(source, shape=LARGE, make=large(0))
    packed.abandon()
    assert not list(packed.path.parent.iterdir())


SHARE = """
import re, sys, fastattn
encoder = fastattn.Encoder(sys.argv[1], precision="int8")
encoder.encode("Two processes read the same pages.")
maps = re.findall(r"/packed/.*?VmFlags", open("/proc/self/smaps").read(), re.DOTALL)
for name in ("Rss", "Anonymous"):
    print(sum(int(re.search(rf"\\n{name}: *(\\d+)", one)[1]) for one in maps), flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="Linux counts shared pages")
def test_processes_share_the_pages(pulled):
    model = str(pulled("minilm"))
    Encoder(model, precision="int8")  # writes the file
    command = [sys.executable, "-c", SHARE, model]
    children = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for child in children:
        total, copied = int(child.stdout.readline()), int(child.stdout.readline())
        assert total > 8_000 and copied == 0  # KB
    for child in children:
        child.communicate()


def test_arrays_of_one_file_share_its_mappings(tmp_path):
    """Each mapping holds a file descriptor."""
    arrays, path = cache_file.CachedArrays(), tmp_path / "some.packed"
    made = [np.full((n, 7), n, np.int32) for n in range(1, 40)]
    kept = [arrays.map_parts(array.shape, array.dtype, [array], path) for array in made]
    assert len({id(mapping_of(array)) for array in kept}) == 1
    contents = arrays.pickled(kept)
    arrays.write(path, "here", contents)
    for found in (kept, cache_file.read(path).load()):
        assert all(np.array_equal(one, array) for one, array in zip(found, made, strict=True))
