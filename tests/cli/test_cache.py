"""``fastattn cache``: what it lists, what it deletes, and what it must never touch."""

import json
import os
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from fastattn import Translator, weights
from fastattn.loading.cache_file import read_origin
from fastattn.loading.model_cache import PackedWeights
from fastattn.runtime.handle import cache_folder
from tests.children import run_child
from tests.cli import commands
from tests.cli.commands import fail, refuse
from tests.weights.ctranslate2.writer import write_tiny

DAY = 86_400
DIGEST = "0123456789abcdef01234567"
PACKED = "ab" * 20 + "-int8-16-4-128-4"


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """An empty cache."""
    monkeypatch.setenv("FASTATTN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def run(*arguments):
    return commands.run("cache", *arguments)


def succeed(*arguments):
    result = run(*arguments)
    assert (result.exit_code, result.stderr) == (0, ""), (result.stderr, result.exception)
    return result.stdout


def put(path, size, days=0.0):
    """A file of ``size`` bytes, changed ``days`` ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    age(path, days)
    return path


def age(path, days):
    os.utime(path, (time.time() - days * DAY,) * 2)


def fill(root, days=0.0):
    """An entry of each kind, of 1, 2 and 4 MB."""
    kernel = put(root / "kernels" / DIGEST / "a.b-kernel.nbi-0123456789abcdef", 1_000_000).parent
    packed = put(root / "packed" / f"{PACKED}.packed", 2_000_000)
    checkpoint = put(root / "checkpoints" / "en-pt-01234567" / "model" / "model.bin", 4_000_000).parent.parent
    put(checkpoint / "SOURCE.txt", 0)
    for path in (kernel, packed, checkpoint, *checkpoint.rglob("*")):
        age(path, days)
    return kernel, packed, checkpoint


def test_an_empty_cache_is_no_error(root):
    assert f"{root}\n" in succeed() and "in all       0 entries, 0.0 MB\n" in succeed()
    assert succeed("--json") == ""
    assert succeed("clear", "--all") == "removed 0 entries, 0.0 MB in all\n"
    assert not root.exists()


def test_lists_by_kind_and_one_by_one(root):
    fill(root, days=3)
    date = time.strftime("%Y-%m-%d", time.localtime(time.time() - 3 * DAY))
    assert [line.split(maxsplit=1)[1] for line in succeed().splitlines()[1:]] == [
        *(f"1 entry, {size}.0 MB, last used {date}" for size in (1, 2, 4)),
        "all       3 entries, 7.0 MB",
    ]
    lines = succeed("--entries").splitlines()[1:]
    assert [line.split() for line in lines] == [
        ["kernels", "1.0", "MB", date, DIGEST],
        ["packed", "2.0", "MB", date, "abababab,", "int8"],
        ["checkpoints", "4.0", "MB", date, "en-pt"],
    ]
    entries, fields = [json.loads(line) for line in succeed("--json").splitlines()], ("kind", "model", "bytes")
    expected = [("kernels", None, 1_000_000), ("packed", None, 2_000_000), ("checkpoints", "en-pt", 4_000_000)]
    assert [tuple(entry[name] for name in fields) for entry in entries] == expected
    assert all(Path(entry["path"]).exists() and not entry["half_made"] for entry in entries)


def test_clears_the_kind_that_is_named_and_by_age(root):
    for kind, size in (("kernels", "1.0"), ("packed", "2.0"), ("checkpoints", "4.0")):
        entries = dict(zip(("kernels", "packed", "checkpoints"), fill(root)))
        told = succeed("clear", f"--{kind}", "--dry-run")
        assert f"would remove 1 entry, {size} MB in all" in told and all(path.exists() for path in entries.values())
        assert succeed("clear", f"--{kind}") == told.replace("would remove", "removed")
        assert [name for name, path in entries.items() if not path.exists()] == [kind]
        assert not list((root / kind).iterdir())
    old = fill(root, days=31)
    young = put(root / "packed" / f"{'cd' * 20}-float32-16-1-0-4.packed", 10, days=29)
    assert "removed 3 entries, 7.0 MB in all" in succeed("clear", "--all", "--older-than", 30)
    assert young.exists() and not any(path.exists() for path in old)
    assert "removed 1 entry" in succeed("clear", "--all", "--older-than", 0)


def test_what_a_start_notes_of_sources_and_cpu_is_among_the_kernels(root):
    """Everything that fastattn puts into the folder is of one of its kinds."""
    run_child("from fastattn.runtime.code_cache import code_digest; code_digest()", FASTATTN_CACHE=str(root))
    notes = [path for path in root.rglob("*") if path.is_file()]
    halves = [put(note.with_name(f"{note.stem}.01234567.part"), 5, days=1) for note in notes]
    assert "left alone" not in succeed() and {note.suffix for note in notes} >= {".sources"}
    listed = succeed("--entries")
    for note, half in zip(notes, halves):
        assert f"{note.name}\n" in listed and f"{half.name}, half made\n" in listed
    assert f"removed {2 * len(notes)} entries" in succeed("clear", "--kernels")
    assert not list((root / "kernels").iterdir())


def test_what_is_not_fastattns_stays(root, tmp_path):
    """Nor is anything outside reached by a link: an entry's, a kind's, or one inside an entry."""
    kernel, packed, checkpoint = fill(root)
    strangers = [
        put(root / "bench" / "peer" / "file", 5),
        put(root / "packed" / "mine.packed", 5),
        put(root / "checkpoints" / "mine" / "model.bin", 5),
        put(root / "checkpoints" / "mine-01234567" / "model.bin", 5),  # no pull made it
        put(root / "kernels" / "notes.txt", 5),
    ]
    outside = put(tmp_path / "elsewhere" / "model.bin", 5)
    put(tmp_path / "elsewhere" / "SOURCE.txt", 5)
    (root / "checkpoints" / "pt-en-01234567").symlink_to(outside.parent)
    (root / "packed" / f"{'ef' * 20}-int8-4.packed").symlink_to(outside)
    (checkpoint / "link").symlink_to(outside.parent)
    listed = succeed()
    assert "3 entries, 7.0 MB" in listed
    assert all(name in listed for name in ("bench", "mine.packed", "mine-01234567", "notes.txt", "pt-en-01234567"))
    succeed("clear", "--all")
    assert not any(path.exists() for path in (kernel, packed, checkpoint))
    assert all(path.is_file() for path in [*strangers, outside, outside.with_name("SOURCE.txt")])
    assert (root / "checkpoints" / "pt-en-01234567").is_symlink()
    _, packed, _ = fill(root)
    os.rename(root / "packed", tmp_path / "packed")  # a kind that is a link
    (root / "packed").symlink_to(tmp_path / "packed")
    assert f"{root / 'packed'}" in succeed().rpartition("left alone")[2]
    succeed("clear", "--all")
    assert packed.exists()


def test_what_is_half_made_goes_once_nobody_is_at_work_on_it(root):
    halves = [
        put(root / "packed" / f"{PACKED}.01234567.part", 10),
        put(root / "checkpoints" / ".pull-en-pt~abc" / "contents" / "model.bin", 10),
    ]
    lock = put(root / "checkpoints" / ".lock-en-pt", 0, days=400)
    age(root / "checkpoints" / ".pull-en-pt~abc", 1)  # what is inside still changes
    assert "half made" in succeed("--entries")
    result = run("clear", "--all")
    assert result.exit_code == 0 and result.stderr.count("may still be writing") == 2
    assert all(path.exists() for path in halves)
    for path in (*halves, halves[1].parent, halves[1].parent.parent):
        age(path, 1)
    assert "removed 2 entries" in succeed("clear", "--all")
    assert not any(path.exists() for path in halves)
    assert lock.exists()  # a pull may be waiting for it


def test_a_clear_that_was_killed_leaves_nothing_that_loads(root, monkeypatch):
    """A folder has another name before its first file goes; the next clear takes what is left."""
    _, _, checkpoint = fill(root, days=1)
    monkeypatch.setattr("shutil.rmtree", lambda path: (_ for _ in ()).throw(KeyboardInterrupt))
    assert run("clear", "--checkpoints").exit_code == 130
    assert not checkpoint.exists() and "half made" in succeed("--entries")
    monkeypatch.undo()
    monkeypatch.setenv("FASTATTN_CACHE", str(root))
    succeed("clear", "--checkpoints")
    assert not list((root / "checkpoints").iterdir())


def test_a_failure_is_one_line_and_the_rest_is_removed(root, monkeypatch):
    kernel, packed, checkpoint = fill(root)
    monkeypatch.setattr(Path, "unlink", Mock(side_effect=PermissionError(13, "Permission denied")))
    result = run("clear", "--all")
    assert result.exit_code == 1
    assert result.stderr == f"fastattn: cannot remove {packed}: Permission denied\n"
    assert packed.exists() and not kernel.exists() and not checkpoint.exists()
    assert "removed 2 entries, 5.0 MB in all" in result.stdout


def test_wrong_usage_removes_nothing_and_a_cache_may_be_a_file(root):
    entries = fill(root, days=50)
    for arguments in ([], ["--older-than", "3"]):
        refuse(2, "cache", "clear", *arguments)
    refuse(2, "cache", "--json", "clear", "--all")
    for days in ("-1", "9" * 400):
        assert " is not in the range 0<=x<=" in fail(2, "cache", "clear", "--all", "--older-than", days)
    assert all(path.exists() for path in entries)
    root.rename(root.with_name("other"))
    root.write_text("")
    for arguments in ([], ["clear", "--all"]):
        refuse(1, "cache", *arguments)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """Those of a translation are in this process before the cache is an empty one."""
    Translator(write_tiny(tmp_path_factory.mktemp("model"))).translate("▁w1 ▁w2", max_decoding_length=4)


@pytest.fixture
def model(kernels, root):
    """A random Transformer where a pull would have put it."""
    folder = write_tiny(root / "checkpoints" / "tiny-en-01234567")
    put(folder / "SOURCE.txt", 0)
    return folder


def test_packed_weights_tell_their_model_and_stay_mapped_when_they_are_cleared(model, root):
    Translator(model)
    (packed,) = (root / "packed").iterdir()
    assert f"{time.strftime('%Y-%m-%d')}  tiny-en, float32\n" in succeed("--entries")
    assert Path(read_origin(packed)).parent == model
    mapped = Translator(model)  # from the file
    expected = mapped.translate("▁w1 ▁w2", max_decoding_length=4)
    succeed("clear", "--packed", "--checkpoints")
    assert not packed.exists() and not model.exists()
    assert mapped.translate("▁w1 ▁w2", max_decoding_length=4) == expected


def test_a_checkpoint_elsewhere_is_told_by_its_folder_or_hub_name(model, root, tmp_path):
    hub = tmp_path / "hub" / "models--owner--name" / "snapshots" / "0123"
    hub.parent.mkdir(parents=True)
    for place, name in ((hub, "owner/name"), (tmp_path / "mine", str(tmp_path / "mine"))):
        os.rename(model, place)
        age(place, 10)
        Translator(place)
        assert time.time() - place.stat().st_mtime > 9 * DAY  # the cache's own folders alone are marked
        assert [json.loads(line)["model"] for line in succeed("--json").splitlines()] == [name]
        succeed("clear", "--packed")
        model = place


def test_loading_is_use(model, root):
    """Of the checkpoint, of its packed weights and of the kernels; reading the list is not."""
    Translator(model)
    (packed,) = (root / "packed").iterdir()
    folder = cache_folder.__wrapped__()
    folder.mkdir(parents=True, exist_ok=True)

    def is_old(path):
        return time.time() - path.stat().st_mtime > 9 * DAY

    for path in (model, packed, folder):
        age(path, 10)
    succeed("--entries")
    assert all(map(is_old, (model, packed, folder)))
    weights.read(model)
    assert not is_old(model)
    PackedWeights(sorted(model.iterdir()), "int8")  # another file's name: no use of this one
    assert is_old(packed)
    Translator(model)
    assert not is_old(packed) and cache_folder.__wrapped__() == folder and not is_old(folder)
