"""Text with tags, glossaries and documents by HTTP, translated by a real model."""

import json
import time
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from fastattn.encoders.encoder import Encoder
from fastattn.serve.settings import Refusal
from fastattn.serve.stored import FileStore
from tests.documents.archives import pdf
from tests.serve.serving import serving


@pytest.fixture(scope="module")
def asked(pulled):
    with serving(models=(("en-pt", str(pulled("en-pt"))),)) as asked:
        yield asked


def upload(asked, file, content, **fields):
    parts = [
        f'--x\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items()
    ]
    head = f'--x\r\ncontent-disposition: form-data; name="file"; filename="{file}"\r\n\r\n'
    body = "".join(parts).encode() + head.encode() + content + b"\r\n--x--\r\n"
    kind = {"content-type": "multipart/form-data; boundary=x"}
    status, answer, _ = asked.raw("POST", "/v2/document", body, **kind)
    return status, json.loads(answer)


def test_text_with_tags_keeps_them(asked):
    page = "<p>Good <b>morning</b>.</p>"
    translated = "<p>Bom <b>dia</b>.</p>"
    libre = {"q": page, "source": "en", "target": "pt", "format": "html"}
    assert asked.post("/translate", libre) == (200, {"translatedText": translated})
    assert asked.post("/translate", libre | {"q": [page, "a"], "source": "auto"})[1]["translatedText"][0] == translated
    deepl = {"text": page, "source_lang": "EN", "target_lang": "PT", "tag_handling": "html"}
    assert asked.post("/v2/translate", deepl)[1]["translations"][0]["text"] == translated
    xml = "<Doc a='1'><T>Good <i>morning</i>.</T><!-- x --><T>Good night.</T></Doc>"
    deepl |= {"text": xml, "tag_handling": "xml"}
    assert asked.post("/v2/translate", deepl)[1]["translations"][0]["text"] == (
        "<Doc a='1'><T>Bom <i>dia</i>.</T><!-- x --><T>Boa noite.</T></Doc>"
    )
    kept = asked.post("/v2/translate", deepl | {"ignore_tags": "i", "text": "<x>Good <i>morning</i>.</x>"})[1]
    assert kept["translations"][0]["text"] == "<x>Bom <i>morning</i>.</x>"
    latin = "<meta charset=iso-8859-1><p>Good morning, José 你.</p>"
    assert "José" in asked.post("/translate", libre | {"q": latin})[1]["translatedText"]
    detected = asked.post("/translate", libre | {"q": [page], "source": "auto"})[1]["detectedLanguage"]
    assert [language["language"] for language in detected] == ["en"]
    assert asked.post("/translate", libre | {"q": [], "source": "auto"})[1]["translatedText"] == []
    odd = "<!DOCTYPE a [<!ENTITY b 'c'>]><a>Good &b; <c x='>'/>morning.<![CDATA[<x>]]></a>"
    answer = asked.post("/v2/translate", deepl | {"text": odd})[1]["translations"][0]["text"]
    kept = ("<!DOCTYPE a [<!ENTITY b 'c'>]><a>", "&b;", "<c x='>'/>", "<![CDATA[<x>]]></a>")
    assert all(piece in answer for piece in kept)
    assert asked.post("/v2/translate", deepl | {"tag_handling": "html", "ignore_tags": "b"})[0] == 400
    half = "Good morning, and no end. " * 1200  # of a request's characters, more than half
    assert asked.raw("POST", "/translate", libre | {"q": [half, half]})[0] == 413
    status, answer, _ = asked.raw("POST", "/translate", libre | {"q": "a " * 30_000})
    assert status == 413 and b"50000 characters" in answer


def test_glossaries_and_documents_are_their_callers(asked):
    entries = {
        "name": "n",
        "source_lang": "EN",
        "target_lang": "PT",
        "entries": "house\tmoradia\n",
        "entries_format": "tsv",
    }
    status, glossary = asked.post("/v2/glossaries", entries)
    assert status == 201 and (glossary["entry_count"], glossary["ready"], glossary["source_lang"]) == (1, True, "en")
    name = glossary["glossary_id"]
    assert asked.get("/v2/glossaries")[1]["glossaries"] == [glossary] == [asked.get(f"/v2/glossaries/{name}")[1]]
    assert asked.raw("GET", f"/v2/glossaries/{name}/entries")[1] == b"house\tmoradia"
    body = {"text": "The house is old.", "source_lang": "EN", "target_lang": "PT", "glossary_id": name}
    assert "moradia" in asked.post("/v2/translate", body)[1]["translations"][0]["text"]
    assert "moradia" in asked.post("/v2/translate", body | {"tag_handling": "html"})[1]["translations"][0]["text"]
    status, document = upload(
        asked, "a.html", b"<p>The house is old.</p>", source_lang="EN", target_lang="PT", glossary_id=name
    )
    assert status == 200
    path = f"/v2/document/{document['document_id']}"
    assert asked.post(path, document)[1]["status"] == "done"
    assert b"moradia" in asked.raw("POST", f"{path}/result", document)[1]
    assert asked.raw("POST", f"{path}/result", document)[0] == 404
    assert upload(asked, "a.exe", b"x", target_lang="PT")[0] == 400
    assert upload(asked, "a.docx", b"x", target_lang="PT")[0] == 400  # its language is not looked for
    assert asked.raw("DELETE", f"/v2/glossaries/{name}")[0] == 204 and asked.get("/v2/glossaries")[1] == {
        "glossaries": []
    }
    for wrong in ("house", "house\ta\nhouse\tb", "house\t"):
        assert asked.post("/v2/glossaries", entries | {"entries": wrong})[0] == 400
    other = asked.post("/v2/glossaries", entries | {"source_lang": "DE", "entries": 'a "b\tc'})[1]["glossary_id"]
    assert asked.post("/v2/translate", body | {"glossary_id": other})[0] == 400  # of another language


def test_a_glossary_is_its_keys(pulled, tmp_path):
    (tmp_path / "keys").write_text("first\nsecond\n")
    entries = {"name": "n", "source_lang": "EN", "target_lang": "PT", "entries": "house\tmoradia\n"}
    with serving(models=(("en-pt", str(pulled("en-pt"))),), keys=str(tmp_path / "keys")) as asked:
        first, second = ({"authorization": f"Bearer {key}"} for key in ("first", "second"))
        name = asked.post("/v2/glossaries", entries, **first)[1]["glossary_id"]
        body = {"text": "a", "source_lang": "EN", "target_lang": "PT", "glossary_id": name}
        assert asked.post("/v2/translate", body, **first)[0] == 200
        assert asked.post("/v2/translate", body, **second)[0] == 404
        assert asked.get("/v2/glossaries", **second)[1] == {"glossaries": []}
        assert asked.raw("DELETE", f"/v2/glossaries/{name}", **second)[0] == 404
        assert asked.raw("GET", f"/v2/glossaries/{name}/entries", **second)[0] == 404
        assert asked.raw("GET", "/v2/glossaries/..%2f..%2fsecret", **first)[0] == 404


def test_stored_files_have_an_owner_a_number_and_an_age(tmp_path, monkeypatch):
    store = FileStore(tmp_path / "kept" / "files", limit=2, seconds=60.0)
    first = store.put("a", b"1", name="n")
    assert store.get("a", first.id).content == b"1" and store.files_of("b") == []
    with pytest.raises(Refusal, match="nothing with this id"):
        store.get("b", first.id)
    store.put("a", b"2")
    with pytest.raises(Refusal, match="2 files are kept"):
        store.put("a", b"3")
    monkeypatch.setattr("fastattn.serve.stored.time", SimpleNamespace(time=Mock(return_value=time.time() + 61)))
    assert store.files_of("a") == [] and not list((tmp_path / "kept" / "files").iterdir())


def test_tokens_have_the_vectors_that_the_mean_is_of(pulled):
    encoder = Encoder(pulled("minilm"))
    tokens_TD, single_D = encoder.encode_tokens("Somebody reads this."), encoder.encode("Somebody reads this.")
    mean_D = tokens_TD.mean(axis=0)
    np.testing.assert_allclose(mean_D / np.linalg.norm(mean_D), single_D, atol=1e-5)
    assert [len(rows) for rows in encoder.encode_tokens(["a", "two words", ""])] == [3, 4, 2]


PLACEHOLDERS = [
    (
        "This person name is {{ person.name }} and is living in {{person.city}}.",
        ["{{ person.name }}", "{{person.city}}"],
    ),
    ("%d%% done", ["%d%%"]),
    ("Hello %NAME%, you have __count__ new messages.", ["%NAME%", "__count__"]),
    ("The price is {0:,.2f} for {user-name}.", ["{0:,.2f}", "{user-name}"]),
    ("{count, plural, one {# item} other {# items}}", ["{count, plural, one {# ", "} other {# ", "}}"]),
]


@pytest.mark.parametrize(("text", "kept"), PLACEHOLDERS)
def test_placeholders_stay(asked, text, kept):
    answer = asked.post("/translate", {"q": text, "source": "en", "target": "pt"})[1]["translatedText"]
    assert all(answer.count(piece) == text.count(piece) for piece in kept), answer
    assert answer != text


def test_a_text_in_capitals_is_translated(asked):
    text = "WHICH COOKIES AND WHICH TRACKERS DO WE USE?"
    answer = asked.post("/translate", {"q": text, "source": "en", "target": "pt"})[1]["translatedText"]
    assert answer == answer.upper() and "WHICH" not in answer and "USE?" not in answer
    assert asked.post("/api/translate", {"text": text, "source": "en", "target": "pt"})[1]["links"]
    with_name = asked.post("/translate", {"q": f"{text} {{NAME}}", "source": "en", "target": "pt"})[1]["translatedText"]
    assert "{NAME}" in with_name and "WHICH" not in with_name


def test_the_key_of_an_upload_is_a_field(pulled, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one 100\ntwo\n")
    parts = {"source": "en", "target": "pt", "api_key": "one"}
    kind = {"content-type": "multipart/form-data; boundary=x"}

    def sent(**changed):
        body = "".join(
            f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in (parts | changed).items()
        )
        body += '--x\r\ncontent-disposition: form-data; name="file"; filename="a.txt"\r\n\r\nGood morning.\r\n--x--\r\n'
        status, answer, _ = asked.raw("POST", "/translate_file", body.encode(), **kind)
        return status, json.loads(answer)

    with serving(models=(("en-pt", str(pulled("en-pt"))),), keys=str(keys)) as asked:
        status, answer = sent()
        assert status == 200
        path = answer["translatedFileUrl"].partition(str(asked.port))[2]
        assert asked.raw("GET", f"{path}?api_key=one")[:2] == (200, b"Bom dia.")
        assert asked.raw("GET", f"{path}?api_key=two")[0] == 404 and asked.raw("GET", path)[0] == 403
        assert sent(api_key="three")[0] == 403
        # Charged once; 100 characters a minute come back, a busy machine takes seconds.
        assert 1 <= asked.get("/v2/usage", authorization="one")[1]["character_count"] <= 14


def test_a_file_by_libretranslates_route(asked):
    head = "--x\r\ncontent-disposition: form-data; name="
    fields = "".join(f'{head}"{name}"\r\n\r\n{value}\r\n' for name, value in {"source": "en", "target": "pt"}.items())
    file = f'{head}"file"; filename="a.md"\r\n\r\n# Good *morning*.\r\n--x--\r\n'
    kind = {"content-type": "multipart/form-data; boundary=x"}
    status, answer, _ = asked.raw("POST", "/translate_file", (fields + file).encode(), **kind)
    assert status == 200
    path = json.loads(answer)["translatedFileUrl"].partition(str(asked.port))[2]
    assert asked.raw("GET", path)[:2] == (200, b"# Bom *dia*.")
    assert asked.raw("GET", path[:-1] + ("0" if path[-1] != "0" else "1"))[0] == 404
    assert asked.post("/suggest", {"q": "a", "s": "b"})[0] == 403
    assert ".docx" in asked.get("/frontend/settings")[1]["supportedFilesFormat"]


def test_a_pdf_becomes_a_page(asked):
    pytest.importorskip("pypdfium2", reason="PDF needs the extra fastattn[pdf]")
    status, document = upload(asked, "a.pdf", pdf([(50, 700, 10, "Good morning.")]), source_lang="EN", target_lang="PT")
    assert status == 200
    for method, path in (("GET", "/download_file/{}"), ("POST", "/v2/document/{}/result")):
        status, page, headers = asked.raw(method, path.format(document["document_id"]), document)
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert b'<html lang="pt">' in page and b"<p>Bom dia.</p>" in page


def test_the_page_takes_terms_and_tags(asked):
    body = {"text": "The house is old.", "source": "en", "target": "pt", "alternatives": 2}
    assert "moradia" in asked.post("/api/translate", body | {"glossary": {"house": "moradia"}})[1]["text"]
    answer = asked.post("/api/translate", body | {"text": "<p>Good <b>morning</b>.</p>", "html": True})[1]
    assert answer["text"] == "<p>Bom <b>dia</b>.</p>" and answer["links"] == []


def test_tokens_are_counted_for_each_model(asked):
    asked.post("/translate", {"q": ["Good morning."], "source": "en", "target": "pt"})
    metrics = asked.raw("GET", "/metrics")[1].decode()
    assert 'fastattn_tokens_total{direction="out",model="en-pt"}' in metrics
    for line in ("request_texts_count{", 'step_jobs_bucket{le="1.0",', "jobs_waiting{"):
        assert f'fastattn_{line}model="en-pt"}}' in metrics
