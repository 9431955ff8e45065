"""Mozilla's list of models and what it leads to, from a server here that speaks its form, whole and broken."""

import gzip
import hashlib
import json
import os
import time
from dataclasses import replace

import pytest

from fastattn.errors import CheckpointError, DownloadError, InputError
from fastattn.weights import download, read
from fastattn.weights.download import firefox, models_between
from fastattn.weights.download.firefox import listed_models, pull_model
from fastattn.weights.download.transport import Transport
from tests.cli.commands import fail, run, succeed
from tests.messages import refused
from tests.weights.download.test_pull import files_below

WEIGHTS, SHORTLIST, VOCABULARY = b"weights" * 999, b"shortlist" * 20, b"vocabulary" * 20


def entry(source, target, architecture="tiny", status="Release", **changes):
    """An entry of the list, as Mozilla's has them."""
    pair, folder = f"{source}{target}", f"models/{source}-{target}/{architecture}"
    files = {
        "model": {"path": f"{folder}/model.{pair}.intgemm.alphas.bin.gz"} | digest(WEIGHTS),
        "lexicalShortlist": {"path": f"{folder}/lex.50.50.{pair}.s2t.bin.gz"},
        "vocab": {"path": f"{folder}/vocab.{pair}.spm.gz"},
    }
    return {
        "architecture": architecture, "releaseStatus": status, "sourceLanguage": source, "targetLanguage": target,
        "files": files | changes, "modelStatistics": {"parameters": 1},
    }  # fmt: skip


def digest(weights):
    return {"uncompressedSize": len(weights), "uncompressedHash": hashlib.sha256(weights).hexdigest()}


def gzipped(data, behind=b""):
    return "application/gzip", gzip.compress(data, 1) + behind


class Mozilla:
    def __init__(self, server):
        self.server, self.models = server, {}

    def offer(self, *entries, contents=(WEIGHTS, SHORTLIST, VOCABULARY)):
        for each in entries:
            self.models.setdefault(f"{each['sourceLanguage']}-{each['targetLanguage']}", []).append(each)
            for file, content in zip(each["files"].values(), contents):
                self.server.answers[f"/base/{file['path']}"] = gzipped(content)
        self.publish({"generated": "2026-11-01T00:00:00Z", "baseUrl": self.server.url + "/base", "models": self.models})

    def publish(self, values):
        body = values if isinstance(values, bytes) else json.dumps(values).encode()
        self.server.answers["/models.json"] = ("application/json", body)

    def pull(self):
        (model,) = models_between("de", "en")
        return pull_model(model)


@pytest.fixture
def mozilla(server, monkeypatch):
    monkeypatch.setenv("FASTATTN_FIREFOX_MODELS", server.url + "/models.json")
    found = Mozilla(server)
    found.offer(entry("de", "en"))
    return found


def aged(days):
    """Make the list that is kept so old."""
    (kept,) = firefox.checkpoints_folder().glob("firefox-models-*/models.json")
    then = time.time() - days * 86400
    os.utime(kept, (then, then))
    return kept


def test_a_model_of_the_list(mozilla):
    (model,) = models_between("de", "en")
    seen = []
    folder = pull_model(model, lambda done, total: seen.append((done, total)))
    names = {"lex.50.50.deen.s2t.bin", "model.deen.intgemm.alphas.bin", "vocab.deen.spm"}
    assert files_below(folder) == names | {"config.yml", "SOURCE.txt"}
    assert (folder / "model.deen.intgemm.alphas.bin").read_bytes() == WEIGHTS and seen[-1] == (len(WEIGHTS),) * 2
    configuration = (folder / "config.yml").read_text()
    assert "vocabs: [vocab.deen.spm, vocab.deen.spm]" in configuration and "[lex.50.50.deen.s2t.bin, " in configuration
    mozilla.server.requests.clear()
    assert download.resolve("de-en") == folder and not mozilla.server.requests


def test_two_vocabularies_and_no_shortlist(mozilla):
    told = entry("en", "ja")
    del told["files"]["vocab"], told["files"]["lexicalShortlist"]
    told["files"] |= {side: {"path": f"m/{side.lower()}.enja.spm.gz"} for side in ("srcVocab", "trgVocab")}
    mozilla.offer(told, contents=(WEIGHTS, b"source", b"target"))
    folder = pull_model(models_between("en", "ja")[0])
    assert (folder / "trgvocab.enja.spm").read_bytes() == b"target"
    configuration = (folder / "config.yml").read_text()
    assert "vocabs: [srcvocab.enja.spm, trgvocab.enja.spm]" in configuration and "shortlist" not in configuration


def test_what_is_released_comes_first_then_the_quality(mozilla):
    mozilla.offer(entry("en", "fr", "tiny"), entry("en", "fr", "base"), entry("en", "fr", "base-memory", "Nightly"))
    statuses = {"base": None, "odd": "Release", "tiny": "Release Android"}
    mozilla.offer(*(entry("fr", "en", kind, status) for kind, status in statuses.items()))

    def chosen(source, target, quality=None):
        return [f"{each.name} {each.architecture}" for each in models_between(source, target, quality)]

    assert chosen("en", "fr") == ["en-fr base"]
    assert chosen("en", "fr", "tiny") == ["en-fr tiny"]
    assert chosen("en", "fr", "base-memory") == ["en-fr base"]  # tiny is as near, and worse
    assert chosen("fr", "en") == ["fr-en tiny"]
    assert chosen("de", "fr") == chosen("German", "fra") == ["de-en tiny", "en-fr base"]
    assert [each.name for each in models_between("zh", "fr")] == ["zh-en", "en-fr"]  # the catalog's first


WRONG = [
    ("de", "xx", None), ("xx", "en", None), ("de", "de", None), ("de", "en", "large"), ("German", None, None),
    ("en", "pt", "large"),  # which the catalog has in one
    (3, "en", None),
]  # fmt: skip


def test_languages_and_qualities_that_are_none(mozilla):
    assert [each.name for each in models_between(None, "Portuguese")] == ["en-pt"]
    for wrong in WRONG:
        with refused(InputError):
            models_between(*wrong)


def test_the_list_is_kept_for_a_day_and_longer_without_the_network(mozilla, monkeypatch):
    assert len(listed_models()) == 1
    aged(0.1).write_bytes(b"{")
    assert len(listed_models()) == 1
    for target, days in (("de", 1.5), ("fr", -1)):  # from the future too
        before = len(listed_models())
        mozilla.offer(entry("en", target))
        assert len(listed_models()) == before
        aged(days)
        assert len(listed_models()) == before + 1
    kept = aged(3)
    mozilla.publish(b"<html>")
    with pytest.warns(UserWarning, match="3 days old and stays in use: cannot read the list.*not JSON"):
        assert len(listed_models()) == 3
    monkeypatch.setenv("FASTATTN_OFFLINE", "1")
    assert len(listed_models()) == 3
    kept.write_bytes(b"cut")
    with pytest.raises(DownloadError, match="FASTATTN_OFFLINE"):
        listed_models()


WRONG_LISTS = [
    b"<html>", b"[]", b'{"models": {}}', b'{"baseUrl": "http://127.0.0.1/", "models": {"de-en": 3}}', b"[" * (33 << 20),
]  # fmt: skip


def test_wrong_lists(mozilla):
    for wrong in WRONG_LISTS:
        mozilla.publish(wrong)
        with pytest.raises(DownloadError, match="cannot read the list of models http") as raised:
            listed_models()
        assert "\n" not in str(raised.value) and len(str(raised.value)) < 300
    assert not list(firefox.checkpoints_folder().glob("firefox*"))


HASH = "0" * 64
ODD = [
    {"vocab": {"path": "/etc/passwd.gz"}}, {"vocab": {"path": "a/../../b.gz"}}, {"vocab": {"path": "a/.gz"}},
    {"vocab": {"path": "a/.bashrc.gz"}}, {"vocab": 7}, {"vocab": None, "srcVocab": {"path": "a/s.spm.gz"}},
    {"lexicalShortlist": {"path": "a/vocab.frit.spm.gz"}}, {"model": {"path": "a/m.bin.gz", "uncompressedSize": 5}},
    {"model": {"path": "a/m.bin.gz", "uncompressedHash": "../../x"}},
    {"model": {"path": "a/m.bin.gz", "uncompressedSize": 10**400, "uncompressedHash": HASH}},
    {"model": {"path": "a/m.bin.gz", "uncompressedSize": -1, "uncompressedHash": HASH}},
]  # fmt: skip


def test_odd_entries_hide_themselves_alone(mozilla):
    for odd in ODD:
        mozilla.offer(entry("fr", "it"))
        mozilla.models["fr-it"][-1]["files"] |= odd
    mozilla.models |= {"odd": [7, None, {}, entry("../x", "en"), entry("de", "en", "../tiny")]}
    mozilla.offer()
    assert [(model.name, model.files) for model in listed_models() if model.name != "de-en"] == []
    assert [model.name for model in listed_models()] == ["de-en"]


CUT = gzip.compress(WEIGHTS)[:30]
BROKEN = [
    (lambda handler: handler.reply(CUT, length=60), "expected|IncompleteRead|ends too early"),
    (("application/gzip", CUT), "ends too early"), (("application/gzip", b"<html>"), "not gzip"),
    (gzipped(WEIGHTS[:-1]), "expected 6993 bytes unpacked, got 6992"),
    (gzipped(WEIGHTS[:-1] + b"x"), "expected SHA-256"), (gzipped(bytes(1 << 20)), "more bytes than expected"),
    (lambda handler: handler.redirect("/afar"), "plain http from a host"),
    (gzipped(WEIGHTS, gzip.compress(b"more")), "more behind the gzip file's end"),
    (gzipped(WEIGHTS, bytes(1 << 20)), "more behind the gzip file's end"),
]  # fmt: skip


def test_a_broken_download_leaves_nothing(mozilla, monkeypatch):
    is_secure = Transport.is_secure
    monkeypatch.setattr(Transport, "is_secure", lambda self, url: "/afar" not in url and is_secure(self, url))
    mozilla.server.answers["/afar"] = gzipped(WEIGHTS)
    for answer, match in BROKEN:
        mozilla.server.answers["/base/models/de-en/tiny/model.deen.intgemm.alphas.bin.gz"] = answer
        with pytest.raises(DownloadError, match=f"de-en.*({match})") as raised:
            mozilla.pull()
        assert "\n" not in str(raised.value)
        (of_the_list,) = (folder.name for folder in firefox.checkpoints_folder().glob("firefox-models-*"))
        left = {".lock-de-en", ".lock-firefox-models", f"{of_the_list}/models.json", f"{of_the_list}/SOURCE.txt"}
        assert files_below(firefox.checkpoints_folder()) == left


def test_addresses_that_are_refused(mozilla, monkeypatch):
    """Plain http from afar, and none; a list over https leads to https alone."""
    for url in ("http://example.invalid/models.json", "http://[x/models.json"):
        monkeypatch.setenv("FASTATTN_FIREFOX_MODELS", url)
        with refused(DownloadError):
            listed_models()
    with refused(CheckpointError):
        firefox._parse_list(b'{"baseUrl": "http://x", "models": {}}', "https://x/models.json")


def test_without_a_list_the_catalog_is_shown_and_the_command_fails(isolated, monkeypatch):
    monkeypatch.setenv("FASTATTN_OFFLINE", "1")
    result = run("languages")
    assert result.exit_code == 4 and "zh-en" in result.stdout and "FASTATTN_OFFLINE forbids" in result.stderr


def test_another_release_has_a_folder_of_its_own(mozilla):
    (first,) = models_between("de", "en")
    assert pull_model(first) == first.folder
    weights = WEIGHTS[::-1]
    changed = entry("de", "en")
    changed["files"]["model"] |= digest(weights)
    mozilla.models.clear()
    mozilla.offer(changed, contents=(weights, SHORTLIST, VOCABULARY))
    aged(2)
    again = download.resolve("de-en")
    assert (again / "model.deen.intgemm.alphas.bin").read_bytes() == weights and again != first.folder
    assert (first.folder / "model.deen.intgemm.alphas.bin").read_bytes() == WEIGHTS


def test_a_model_is_configured_as_firefox_does(mozilla, pulled):
    folder = pulled("en-pt")
    names = ("model.enpt.intgemm.alphas.bin", "lex.50.50.enpt.s2t.bin", "vocab.enpt.spm")
    contents = [(folder / name).read_bytes() for name in names]
    told = entry("fr", "en")
    told["files"]["model"] |= digest(contents[0])
    mozilla.offer(told, contents=contents)
    both = read(folder), read(download.resolve("fr-en"))
    expected, found = (replace(each.text, source_language="", target_language="") for each in both)
    longer = replace(expected.decoding, max_length_factor=2.0)  # as Firefox has it; the catalog's have 2.5
    assert found == replace(expected, decoding=longer)
    scales = [{name: getattr(tensor, "input_scale", None) for name, tensor in each.tensors.items()} for each in both]
    assert scales[0] == scales[1] and any(scales[0].values())


def test_passwords_are_used_and_not_kept(mozilla, monkeypatch):
    url = mozilla.server.url.replace("//", "//me:secret@")
    monkeypatch.setenv("FASTATTN_FIREFOX_MODELS", url + "/models.json")
    mozilla.publish({"baseUrl": url + "/base", "models": mozilla.models})
    (model,) = models_between("de", "en")
    pull_model(model)
    assert all("Authorization" in headers for _, headers in mozilla.server.requests)
    kept = list(firefox.checkpoints_folder().glob("firefox-*/SOURCE.txt"))
    assert len(kept) == 2 and not any("secret" in file.read_text() for file in kept) and "secret" not in model.origin


def test_a_list_that_cannot_be_kept_is_used(mozilla, tmp_path, monkeypatch):
    listed_models()
    (kept := aged(2)).unlink()
    kept.mkdir()
    with pytest.warns(UserWarning, match="the list of models is not kept: cannot write to .*firefox-models-.*: Is a d"):
        assert len(listed_models()) == 1
    assert os.listdir(kept.parent) and not list(kept.parent.glob("*.part"))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FASTATTN_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="is not kept: cannot write firefox-models to the cache"):
        assert len(listed_models()) == 1


def test_models_by_any_code_of_their_languages(mozilla):
    mozilla.offer(entry("nb", "en"), entry("en", "zh_hant"))
    assert (
        download.find_model("nb-en").name
        == download.find_model("no-en").name
        == download.find_model("nob-eng").name
        == "nb-en"
    )
    assert download.find_model("en-zh_hant") == download.find_model("en-zh-Hant") == models_between("en", "zh-TW")[0]
    assert "en-zh_hant" in succeed("pull", "en-zh_hant")
    with refused(InputError):
        models_between("zh-TW", "en")


def test_offline_the_hint_names_the_same_model(mozilla, monkeypatch):
    mozilla.offer(entry("en", "fr", "tiny"), entry("en", "fr", "base"), entry("fr", "en", "odd"))
    wanted = [*models_between("en", "fr", "tiny"), *models_between("fr", "en")]
    monkeypatch.setenv("FASTATTN_OFFLINE", "1")
    for model, command in zip(wanted, ("pull --quality tiny en-fr", "pull fr-en")):
        with refused(DownloadError, command):
            pull_model(model)
        with monkeypatch.context() as online:
            online.delenv("FASTATTN_OFFLINE")
            succeed(*command.split())
        assert pull_model(model).is_dir()


def test_the_commands_list_and_pull_by_languages(mozilla):
    mozilla.offer(entry("en", "fr", "base"), entry("en", "fr", "tiny", "Nightly"))
    said = [line for line in succeed("pull", "de-fr").splitlines() if line.startswith("folder")]
    assert said == [f"folder:  {model.folder}" for model in models_between("de", "fr")]
    listed = {line.split()[0]: line for line in succeed("languages").splitlines()}
    assert listed.keys() == {"de-en", "en-fr", "en-pt", "pt-en", "zh-en"}
    assert "German to English" in listed["de-en"] and listed["de-en"].endswith("tiny, here")
    assert listed["en-fr"].endswith("base, tiny*, here") and listed["zh-en"].endswith("catalog")
    pairs = [json.loads(line) for line in succeed("languages", "--json").splitlines()]
    assert pairs[0] == {"source": "de", "target": "en", "models": ["tiny"], "here": True}
    assert "Firefox has no model xx-en" in fail(3, "pull", "xx-en")
