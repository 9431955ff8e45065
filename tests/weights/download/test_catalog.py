"""The catalog's entries, and how a name or a path becomes a folder."""

import dataclasses
import os
import re
from pathlib import Path

import pytest

from fastattn.errors import CheckpointError, DownloadError, InputError
from fastattn.system.cache_folder import cache_root
from fastattn.weights.download import catalog, resolve
from fastattn.weights.download.catalog import CATALOG, lookup, translation_between
from tests.messages import refused

MINILM = CATALOG["minilm"]


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTATTN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FASTATTN_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", CATALOG)
def test_an_entry_is_complete(name):
    entry = CATALOG[name]
    assert entry.name == name and re.fullmatch(r"[0-9a-f]{64}", entry.sha256)
    assert entry.file.endswith((".whl", ".tar.gz")) and entry.version in entry.file
    assert entry.file_size > 0 and entry.size > 0 and entry.licence and entry.origin and entry.title
    kinds = {"en-pt": "translation", "pt-en": "translation", "zh-en": "translation", "minilm": "sentence encoder"}
    assert (entry.kind == "translation") == (entry.languages is not None) and entry.kind == kinds.get(name, entry.kind)
    assert "-" not in name[:3] or "-".join(entry.languages) == name
    targets = [target for _, target in entry.members]
    assert len(set(targets)) == len(targets) > 1
    # It carries the makers' own word on the licence; Firefox's models have it in their repository alone.
    assert "README.md" in targets or "firefox-translations-models" in entry.origin


def test_an_entry_cannot_place_a_file_outside_its_folder():
    for target in ("../x", "a/../../x", "/x", "", "a\\b", "C:x"):
        with refused(CheckpointError):
            dataclasses.replace(MINILM, members=(("x", target),))


def test_the_folder_changes_with_what_it_holds():
    changes = ({"sha256": "0" * 64}, {"members": MINILM.members[1:]}, {"title": "new words"})
    assert MINILM.folder.parent == cache_root() / "checkpoints" and MINILM.folder.name.startswith("minilm-")
    same = [dataclasses.replace(MINILM, **change).folder == MINILM.folder for change in changes]
    assert same == [False, False, True]


def test_an_existing_path_is_itself_even_when_the_catalog_has_its_name(tmp_path):
    (tmp_path / "minilm").mkdir()
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.warns(UserWarning, match="minilm here hides the catalog's minilm"):
        assert resolve("minilm") == Path("minilm")
    assert resolve(tmp_path / "model.bin") == tmp_path / "model.bin"


def test_a_pulled_name_is_its_folder_without_a_network_also_of_a_new_entry(tmp_path, monkeypatch):
    entry = dataclasses.replace(MINILM, name="another")
    monkeypatch.setitem(catalog.CATALOG, "another", entry)
    for one in (CATALOG["zh-en"], entry):
        one.folder.mkdir(parents=True)
        assert resolve(one.name) == one.folder and one.folder.is_relative_to(tmp_path / "cache")


def test_an_absent_name_is_pulled_and_offline_says_what_to_run(monkeypatch, tmp_path):
    with refused(DownloadError):
        resolve("zh-en")
    pull_entry = "fastattn.weights.download.pull.pull_entry"
    monkeypatch.setattr(pull_entry, lambda entry, progress: tmp_path / f"pulled {entry.name}")
    assert resolve("zh-en") == tmp_path / "pulled zh-en"


PAIRS = [
    (None, None, "en-pt"), ("en", "pt", "en-pt"), ("zh", "en", "zh-en"), ("pt", None, "pt-en"), (None, "pt", "en-pt"),
]  # fmt: skip
OTHERS = [
    ("fr", "de"), ("fr", "en"), ("pt", "pt"), (None, "fr"), ("fr", None), ("", None), ("English", "de_DE"),
    (None, "en"),
]  # fmt: skip


def test_languages_choose_a_model():
    for source, target, name in PAIRS:
        assert translation_between(source, target) is CATALOG[name]
    for source, target in OTHERS:  # the pairs that there are, and what the hub may have
        with refused(InputError, "en-pt", "pt-en", "zh-en"):
            translation_between(source, target)


# Slips, names of the hub's, and what is none.
NAMES = [
    "zh-em", "ZH-EN", "en_pt", "mini-lm", "./zh-en/", "nothing", "en-de", "all-MiniLM-L6-v2", "all-mpnet-base-v2",
    "paraphrase-multilingual-MiniLM-L12-v2", "multi-qa-MiniLM-L6-cos-v1", "opus-mt-en-de", "", "a\0b", "x" * 300,
    os.path.join("no", "such", "folder"),
]  # fmt: skip


def test_a_name_that_is_none_lists_the_catalog_and_what_is_near():
    for name in NAMES:
        for find in (resolve, lookup):
            with refused(CheckpointError):
                find(name)
