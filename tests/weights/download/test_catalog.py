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

# What is tried for languages that the catalog lacks.
TRY = "; the Hugging Face hub may have one, try -m Helsinki-NLP/opus-mt"
MANY = " or, from any of many languages, Helsinki-NLP/opus-mt-mul-en"
CODE = "; a language is a code of two or three letters, such as en"


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTATTN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FASTATTN_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)


def test_the_catalog_holds_what_the_documentation_names():
    assert CATALOG["minilm"].kind == "sentence encoder"
    for name in ("en-pt", "pt-en", "zh-en"):
        assert CATALOG[name].kind == "translation" and "-".join(CATALOG[name].languages) == name


@pytest.mark.parametrize("name", CATALOG)
def test_an_entry_is_complete(name):
    entry = CATALOG[name]
    assert entry.name == name
    assert re.fullmatch(r"[0-9a-f]{64}", entry.sha256)
    assert entry.file.endswith((".whl", ".tar.gz"))
    assert entry.version in entry.file
    assert entry.file_size > 0 and entry.size > 0
    assert entry.licence and entry.origin and entry.title
    assert (entry.kind == "translation") == (entry.languages is not None)
    targets = [target for _, target in entry.members]
    assert len(set(targets)) == len(targets) > 1
    # It carries the makers' own word on the licence; Firefox's models have it in their repository alone.
    assert "README.md" in targets or "firefox-translations-models" in entry.origin


@pytest.mark.parametrize("target", ["../x", "a/../../x", "/x", "", "a\\b", "C:x"])
def test_an_entry_cannot_place_a_file_outside_its_folder(target):
    with pytest.raises(CheckpointError, match="not a path inside"):
        dataclasses.replace(CATALOG["minilm"], members=(("x", target),))


def test_the_folder_changes_with_what_it_holds():
    entry = CATALOG["minilm"]
    assert entry.folder.parent == cache_root() / "checkpoints"
    assert entry.folder.name.startswith("minilm-")
    assert dataclasses.replace(entry, sha256="0" * 64).folder != entry.folder
    assert dataclasses.replace(entry, members=entry.members[1:]).folder != entry.folder
    assert dataclasses.replace(entry, title="new words").folder == entry.folder


def test_an_existing_path_is_itself_even_when_the_catalog_has_its_name(tmp_path):
    (tmp_path / "minilm").mkdir()
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.warns(UserWarning, match="minilm here hides the catalog's minilm"):
        assert resolve("minilm") == Path("minilm")
    assert resolve(tmp_path / "model.bin") == tmp_path / "model.bin"


def test_a_pulled_name_is_its_folder_without_a_network(tmp_path):
    folder = CATALOG["zh-en"].folder
    folder.mkdir(parents=True)
    assert resolve("zh-en") == folder
    assert folder.is_relative_to(tmp_path / "cache")


def test_an_absent_name_is_pulled(monkeypatch, tmp_path):
    monkeypatch.setattr(
        "fastattn.weights.download.pull.pull_entry", lambda entry, progress: tmp_path / f"pulled {entry.name}"
    )
    assert resolve("zh-en") == tmp_path / "pulled zh-en"


def test_offline_an_absent_name_says_what_to_run():
    with pytest.raises(DownloadError, match="FASTATTN_OFFLINE.*fastattn pull zh-en") as raised:
        resolve("zh-en")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "name", ["no-such-model", "", "a\0b", "x" * 5000, "ZH-EN", os.path.join("no", "such", "folder")]
)
def test_anything_else_lists_the_catalog(name):
    with pytest.raises(
        CheckpointError, match="en-pt, pt-en, e2k, minilm, smollm2, splade-tiny, thai2rom, zh-en"
    ) as raised:
        resolve(name)
    assert "\n" not in str(raised.value) and "\0" not in str(raised.value)
    with pytest.raises(CheckpointError, match="en-pt, pt-en, e2k, minilm, smollm2, splade-tiny, thai2rom, zh-en"):
        lookup(name)


@pytest.mark.parametrize(
    "languages, name",
    [
        ((None, None), "en-pt"),
        (("en", "pt"), "en-pt"),
        (("pt", "en"), "pt-en"),
        (("zh", "en"), "zh-en"),
        (("pt", None), "pt-en"),
        ((None, "pt"), "en-pt"),
        (("zh", None), "zh-en"),
    ],
)
def test_languages_choose_a_model(languages, name):
    assert translation_between(*languages) is CATALOG[name]


@pytest.mark.parametrize(
    "languages, reason, hint",
    [
        (("fr", "de"), "no model of the catalog translates from fr to de; ", f"{TRY}-fr-de"),
        (("fr", "en"), "no model of the catalog translates from fr to en; ", f"{TRY}-fr-en{MANY}"),
        (("pt", "pt"), "no model of the catalog translates from pt to pt; ", ""),
        ((None, "fr"), "no model of the catalog translates to fr; ", f"{TRY}-en-fr"),
        (("fr", None), "no model of the catalog translates from fr; ", f"{TRY}-fr-en{MANY}"),
        (("", None), "no model of the catalog translates from ; ", CODE),
        (("English", "de_DE"), "no model of the catalog translates from English to de_DE; ", CODE),
        ((None, "en"), "several models translate to en; ", ""),
    ],
)
def test_other_languages_list_the_pairs_and_what_the_hub_may_have(languages, reason, hint):
    with pytest.raises(InputError) as raised:
        translation_between(*languages)
    pairs = "there are: from en to pt (en-pt), from pt to en (pt-en), from zh to en (zh-en)"
    assert str(raised.value) == reason + pairs + hint


def test_a_pair_that_is_no_name_of_the_catalog_is_one_of_the_hubs_perhaps():
    with pytest.raises(CheckpointError, match="; the Hugging Face hub may have one: Helsinki-NLP/opus-mt-en-de$"):
        resolve("en-de")
    with pytest.raises(CheckpointError, match=r"zh-en\)$"):
        resolve("nothing")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("zh-em", "zh-en"), ("ZH-EN", "zh-en"), ("en_pt", "en-pt"), ("mini-lm", "minilm"), ("./zh-en/", "zh-en")],
)
def test_a_name_near_one_of_the_catalogs_is_taken_for_a_slip(name, meant):
    with pytest.raises(CheckpointError, match=f"; did you mean {meant}\\?$"):
        resolve(name)


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("all-MiniLM-L6-v2", "sentence-transformers"),
        ("all-mpnet-base-v2", "sentence-transformers"),
        ("paraphrase-multilingual-MiniLM-L12-v2", "sentence-transformers"),
        ("multi-qa-MiniLM-L6-cos-v1", "sentence-transformers"),
        ("opus-mt-en-de", "Helsinki-NLP"),
    ],
)
def test_a_hubs_name_without_its_owner_is_told_whole(name, owner):
    with pytest.raises(CheckpointError, match=f"; the Hugging Face hub's name would be {owner}/{name}$"):
        resolve(name)


def test_a_new_name_is_one_more_entry(monkeypatch, tmp_path):
    entry = dataclasses.replace(CATALOG["minilm"], name="another")
    monkeypatch.setitem(catalog.CATALOG, "another", entry)
    entry.folder.mkdir(parents=True)
    assert resolve("another") == entry.folder
