"""The suite leaves in a user's cache what it found there."""

from tests.left_in_cache import none_added


def test_packed_weights_and_shipped_models_go_and_what_was_there_stays(tmp_path):
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "old").touch()
    for name in ("en-pt-1", "shipped-1"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
        (tmp_path / "checkpoints" / name / "model").touch()
    before = sorted(tmp_path.rglob("*"))
    with none_added(tmp_path):
        (tmp_path / "packed" / "new").touch()
        (tmp_path / "checkpoints" / "shipped-2").mkdir()
        (tmp_path / "checkpoints" / "shipped-2" / "model").touch()
        (tmp_path / "checkpoints" / "shipped-1" / "model").touch()
    assert sorted(tmp_path.rglob("*")) == before
