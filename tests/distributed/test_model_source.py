"""How a model reaches a host."""

from types import SimpleNamespace

import numpy as np
import pytest

from fastattn.distributed import model_source
from fastattn.distributed.model_source import ModelSource, digest_of, local_path, mapped_files
from fastattn.errors import CheckpointError
from tests.messages import refused


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "sub" / "weights.bin").write_bytes(bytes(range(256)))
    (folder / "empty").touch()
    (folder / "SOURCE.txt").write_text("from somewhere")
    return folder


@pytest.fixture
def shipped(monkeypatch, tmp_path):
    """A function from a path to the ModelSource that ships it; the cache is the test's own."""
    monkeypatch.setenv("FASTATTN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(model_source, "import_ray", lambda: SimpleNamespace(get=lambda stored: stored))

    def source(path, absent=None, **changed):
        stored = mapped_files(path)
        given = {"name": path.name, "path": str(absent or path), "digest": digest_of(path), "reach": "store"}
        return ModelSource(**given | {"is_folder": path.is_dir(), "store_reference": stored} | changed)

    return source


def test_a_digest_is_of_names_and_contents(model):
    first = digest_of(model)
    (model / "SOURCE.txt").unlink()
    assert digest_of(model) == first
    (model / "empty").rename(model / "void")
    assert digest_of(model) != first
    (model / "void").rename(model / "empty")
    assert digest_of(model) == first
    (model / "config.json").write_text("[]")
    assert digest_of(model) != first


def test_what_is_shipped_is_unpacked_once_and_is_the_same(model, shipped):
    source = shipped(model)
    found = local_path(source)
    assert found != model
    assert (found / "sub" / "weights.bin").read_bytes() == bytes(range(256))
    assert (found / "SOURCE.txt").read_text() == "model, shipped to this host\n"
    stamp = (found / "config.json").stat().st_ino
    assert local_path(source) == found
    assert (found / "config.json").stat().st_ino == stamp
    assert [entry.name for entry in found.parent.iterdir()] == [found.name]


def test_a_single_file_that_was_shipped_under_another_name_is_found(tmp_path, shipped):
    paths = [tmp_path / name for name in (".first.argosmodel", "second.argosmodel")]
    for path in paths:
        path.write_bytes(b"model")
        found = local_path(shipped(path))
        assert (found.name, found.read_bytes()) == (paths[0].name, b"model")
    assert digest_of(paths[0]) == digest_of(paths[1])


def test_another_model_in_its_place_is_an_error(model, shipped, tmp_path):
    found = local_path(shipped(model))
    (found / "config.json").write_text("[]")
    with refused(CheckpointError, str(found)):
        local_path(shipped(model))
    by_path = shipped(model, reach="path", store_reference=None)
    assert local_path(by_path) == model
    (model / "config.json").write_text("[1]")
    with pytest.raises(CheckpointError, match="on host .* is another model"):
        local_path(by_path)
    with pytest.raises(CheckpointError, match="on host .*no checkpoint"):
        local_path(shipped(model, reach="path", absent=tmp_path / "gone"))


def test_nothing_is_written_outside_the_folder(model, shipped, tmp_path):
    stored = {"../../outside": np.zeros(1, np.uint8)}
    with refused(CheckpointError):
        local_path(shipped(model, store_reference=stored))
    assert not list((tmp_path / "cache").rglob("outside"))


def test_a_folder_of_many_files_is_no_checkpoint(tmp_path):
    for number in range(model_source.MOST_FILES + 1):
        (tmp_path / str(number)).touch()
    with refused(CheckpointError):
        digest_of(tmp_path)
