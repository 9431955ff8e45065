"""DeepL's routes, for DeepL's own client and others that speak like it."""

import csv
import json
from datetime import datetime, timezone
from typing import Annotated, Any, Literal

from fastapi import APIRouter, File, Form, Response, UploadFile
from pydantic import Field

from fastattn.documents.forms import FIELD_FORMS, FORMS, form_of
from fastattn.documents.tagged import XmlRules
from fastattn.errors import InputError
from fastattn.printable import printable
from fastattn.serve.dialects.body import Body, Serving, as_list
from fastattn.serve.service import AUTO, CALLER, QUOTA, Service, visible
from fastattn.serve.stored import Stored
from fastattn.text.languages import name_of

router = APIRouter(prefix="/v2")
DOCUMENT_FORMS = [form for form in FORMS if form not in FIELD_FORMS]
UNLIMITED = 10**12  # what DeepL says where there is no limit


class DeepLBody(Body):
    """Preferences that a model cannot follow, of formality, model or style, are ignored."""

    text: Annotated[str | list[str], Field(min_length=1)]
    target_lang: str
    source_lang: str | None = None
    split_sentences: Literal["0", "1", "nonewlines"] | None = None
    preserve_formatting: bool = True
    formality: Literal["default", "more", "less", "prefer_more", "prefer_less"] = "default"
    context: str | None = None  # for models that read it
    glossary_id: str | None = None
    tag_handling: Literal["html", "xml"] | None = None
    outline_detection: bool = True
    splitting_tags: list[str] | str = []
    non_splitting_tags: list[str] | str = []
    ignore_tags: list[str] | str = []
    show_billed_characters: bool = False
    model_type: str | None = None
    auth_key: str = ""

    def rules(self) -> XmlRules:
        """The rules of an XML text."""
        return XmlRules(
            self.outline_detection,
            frozenset(_names(self.splitting_tags)),
            frozenset(_names(self.non_splitting_tags)),
            frozenset(_names(self.ignore_tags)),
        )


def _names(value: list[str] | str) -> list[str]:
    return [tag for part in as_list(value) for tag in part.split(",") if tag]


@router.post("/translate")
async def translate(body: DeepLBody, service: Serving) -> dict[str, Any]:
    source, texts = body.source_lang or AUTO, as_list(body.text)
    glossary = _terms(service, body.glossary_id)
    if body.tag_handling:
        documents = [text.encode() for text in texts]
        rules = body.rules() if body.tag_handling == "xml" else None
        translated, language = await service.translate_documents(
            documents, body.tag_handling, source, body.target_lang, glossary=glossary, rules=rules
        )
        pairs = [(document.decode(), language) for document in translated]
    else:
        read = [" ".join(text.split("\n")) if body.split_sentences == "nonewlines" else text for text in texts]
        options: dict[str, Any] = {"split": "never"} if body.split_sentences == "0" else {}
        translations = await service.translate(read, source, body.target_lang, glossary=glossary, **options)
        pairs = [(translation.text, translation.source) for translation in translations]
    answers: list[dict[str, Any]] = []
    for text, (translation, language) in zip(texts, pairs):
        answers.append({"detected_source_language": language.upper(), "text": translation})
        if body.show_billed_characters:
            answers[-1]["billed_characters"] = len(text)
    return {"translations": answers}


class GlossaryBody(Body):
    name: Annotated[str, Field(min_length=1)]
    source_lang: str
    target_lang: str
    entries: str
    entries_format: Literal["tsv", "csv"] = "tsv"


@router.post("/glossaries", status_code=201)
async def create_glossary(body: GlossaryBody, service: Serving) -> dict[str, Any]:
    delimiter = "\t" if body.entries_format == "tsv" else ","
    rows = [row for row in csv.reader(body.entries.splitlines(), delimiter=delimiter) if row]
    if not rows or any(len(row) < 2 or not row[0].strip() or not row[1].strip() for row in rows):
        raise InputError(f"entries should be lines of {body.entries_format}: a term and its translation")
    content = json.dumps({row[0]: row[1] for row in rows}).encode()
    fields = {"name": body.name, "entry_count": len(rows)}
    languages = {"source_lang": body.source_lang.lower(), "target_lang": body.target_lang.lower()}
    return _described(service.glossaries.put(CALLER.get(), content, **fields, **languages))


@router.get("/glossaries")
async def list_glossaries(service: Serving) -> dict[str, Any]:
    return {"glossaries": [_described(stored) for stored in service.glossaries.of(CALLER.get())]}


@router.get("/glossaries/{name}")
async def get_glossary(name: str, service: Serving) -> dict[str, Any]:
    return _described(service.glossaries.get(CALLER.get(), name))


@router.get("/glossaries/{name}/entries")
async def glossary_entries(name: str, service: Serving) -> Response:
    terms = json.loads(service.glossaries.get(CALLER.get(), name).content)
    lines = "\n".join(f"{term}\t{translation}" for term, translation in terms.items())
    return Response(lines, media_type="text/tab-separated-values")


@router.delete("/glossaries/{name}", status_code=204, response_class=Response)
async def delete_glossary(name: str, service: Serving) -> None:
    service.glossaries.delete(CALLER.get(), name)


def _terms(service: Service, name: str | None) -> dict[str, str] | None:
    return json.loads(service.glossaries.get(CALLER.get(), name).content) if name else None


def _described(stored: Stored) -> dict[str, Any]:
    fields = dict(stored.fields)
    created = datetime.fromtimestamp(fields.pop("created"), timezone.utc).isoformat()
    return {"glossary_id": stored.id, "ready": True, **fields, "creation_time": created}


@router.post("/document")
async def upload(
    service: Serving,
    file: Annotated[UploadFile, File()],
    target_lang: Annotated[str, Form()],
    source_lang: Annotated[str, Form()] = AUTO,
    filename: Annotated[str, Form()] = "",
    glossary_id: Annotated[str, Form()] = "",
) -> dict[str, str]:
    """Translates the document before it answers."""
    name = filename or file.filename or ""
    if (form := form_of(name)) is None or form in FIELD_FORMS:
        raise InputError(f"documents of {printable(name)!r} are not translated; {', '.join(DOCUMENT_FORMS)} are")
    content, glossary = await file.read(), _terms(service, glossary_id)
    (translated,), _ = await service.translate_documents(
        [content], form, source_lang, target_lang, glossary=glossary, name=printable(name)
    )
    stored = service.documents.put(CALLER.get(), translated, name=name, characters=len(visible(content)))
    return {"document_id": stored.id, "document_key": stored.id}


@router.post("/document/{name}")
async def document_status(name: str, service: Serving) -> dict[str, Any]:
    stored = service.documents.get(CALLER.get(), name)
    return {"document_id": stored.id, "status": "done", "billed_characters": stored.fields["characters"]}


@router.post("/document/{name}/result")
async def document_result(name: str, service: Serving) -> Response:
    stored = service.documents.get(CALLER.get(), name)
    service.documents.delete(CALLER.get(), name)
    return Response(stored.content, media_type="application/octet-stream")


@router.get("/languages")
async def languages(service: Serving, type: Literal["source", "target"] = "source") -> list[dict[str, Any]]:
    codes = sorted({pair[type == "target"] for pair in service.pairs})
    formality = {"supports_formality": False} if type == "target" else {}
    return [{"language": code.upper(), "name": name_of(code), **formality} for code in codes]


@router.get("/usage")
async def usage() -> dict[str, int]:
    """The characters of this minute that a key with a quota has used; without a quota, all since the process began."""
    used, most = QUOTA.get().used()
    return {"character_count": used, "character_limit": most or UNLIMITED}


def error_body(status: int, message: str) -> dict[str, Any]:
    return {"message": message}
