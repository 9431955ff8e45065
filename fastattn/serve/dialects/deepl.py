"""DeepL's routes, for DeepL's own client and for other clients that speak like it."""

import asyncio
import csv
import io
import json
from datetime import datetime, timezone
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, File, Form, Response, UploadFile
from pydantic import Field

from fastattn.documents.tagged import XmlRules
from fastattn.errors import InputError
from fastattn.serve.dialects.body import Body, InjectedService, as_list
from fastattn.serve.service import AUTO, CALLER, QUOTA, Service, language_code
from fastattn.serve.stored import ClientFile
from fastattn.text.languages import name_of

router = APIRouter(prefix="/v2")
MOST_TERMS = 5000
UNLIMITED = 10**12  # DeepL's number for an account without a limit


class DeepLBody(Body):
    """Preferences that a model cannot follow, of formality, model or style, are ignored."""

    text: Annotated[str | list[str], Field(min_length=1)]
    target_lang: str
    source_lang: str | None = None
    split_sentences: Literal["0", "1", "nonewlines"] | None = None
    preserve_formatting: bool = True
    formality: Literal["default", "more", "less", "prefer_more", "prefer_less"] = "default"
    context: str | None = None  # ignored: no model here reads it
    glossary_id: str | None = None
    tag_handling: Literal["html", "xml"] | None = None
    outline_detection: bool = True
    splitting_tags: list[str] | str = []
    non_splitting_tags: list[str] | str = []
    ignore_tags: list[str] | str = []
    show_billed_characters: bool = False
    model_type: str | None = None
    auth_key: str = ""


def _tag_names(value: list[str] | str) -> frozenset[str]:
    return frozenset(name for names in as_list(value) for name in names.split(",") if name)


@router.post("/translate")
async def translate(body: DeepLBody, service: InjectedService) -> dict[str, Any]:
    source, texts = body.source_lang or AUTO, as_list(body.text)
    pair, tags = (source, body.target_lang), (body.splitting_tags, body.non_splitting_tags, body.ignore_tags)
    options: dict[str, Any] = {"split": "never"} if body.split_sentences == "0" else {}
    options["glossary"] = await _glossary_terms(service, body.glossary_id, body.source_lang, body.target_lang)
    if body.tag_handling == "html":
        if any(tags):
            raise InputError("ignore_tags, splitting_tags and non_splitting_tags go with tag_handling xml")
        translations = await service.translate_text_documents(texts, "html", *pair, **options)
    elif body.tag_handling == "xml":
        options["rules"] = XmlRules(body.outline_detection, *map(_tag_names, tags))
        translations = await service.translate_text_documents(texts, "xml", *pair, **options)
    else:
        no_newlines = body.split_sentences == "nonewlines"
        lines = [text.replace("\n", " ") for text in texts] if no_newlines else texts
        translations = await service.translate(lines, *pair, **options)
    entries: list[dict[str, Any]] = []
    for text, translation in zip(texts, translations):
        entries.append({"detected_source_language": translation.source.upper(), "text": translation.text})
        if body.show_billed_characters:
            entries[-1]["billed_characters"] = len(text)
    return {"translations": entries}


class GlossaryBody(Body):
    name: Annotated[str, Field(min_length=1)]
    source_lang: str
    target_lang: str
    entries: str
    entries_format: Literal["tsv", "csv"] = "tsv"


@router.post("/glossaries", status_code=201)
async def create_glossary(body: GlossaryBody, service: InjectedService) -> dict[str, Any]:
    options: dict[str, Any] = {} if body.entries_format == "csv" else {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    try:
        rows = [row for row in csv.reader(io.StringIO(body.entries, newline=""), **options) if row]
    except csv.Error as error:
        raise InputError(f"entries are no {body.entries_format}: {error}") from None
    if not rows or any(len(row) < 2 or not row[0].strip() or not row[1].strip() for row in rows):
        raise InputError(f"entries should be lines of {body.entries_format}: a term and its translation")
    terms = {row[0]: row[1] for row in rows}
    if len(terms) < len(rows) or len(terms) > MOST_TERMS:
        raise InputError(f"a glossary should have at most {MOST_TERMS} terms, each once; has {len(rows)} lines")
    service.check_size([body.entries])()
    languages = {"source_lang": language_code(body.source_lang), "target_lang": language_code(body.target_lang)}
    fields = {"name": body.name, "entry_count": len(rows), **languages}
    put = partial(service.glossaries.put, CALLER.get(), json.dumps(terms).encode(), **fields)
    return _glossary_fields(await asyncio.to_thread(put))


@router.get("/glossaries")
async def list_glossaries(service: InjectedService) -> dict[str, Any]:
    files = await asyncio.to_thread(service.glossaries.files_of, CALLER.get())
    return {"glossaries": [_glossary_fields(stored) for stored in files]}


@router.get("/glossary-language-pairs")
async def glossary_pairs(service: InjectedService) -> dict[str, Any]:
    pairs = [{"source_lang": source, "target_lang": target} for source, target in sorted(service.pairs)]
    return {"supported_languages": pairs}


@router.get("/glossaries/{name}")
async def get_glossary(name: str, service: InjectedService) -> dict[str, Any]:
    return _glossary_fields(await asyncio.to_thread(service.glossaries.get, CALLER.get(), name))


@router.get("/glossaries/{name}/entries")
async def glossary_entries(name: str, service: InjectedService) -> Response:
    stored = await asyncio.to_thread(service.glossaries.get, CALLER.get(), name)
    lines = "\n".join(f"{term}\t{translation}" for term, translation in json.loads(stored.content).items())
    return Response(lines, media_type="text/tab-separated-values")


@router.delete("/glossaries/{name}", status_code=204, response_class=Response)
async def delete_glossary(name: str, service: InjectedService) -> None:
    await asyncio.to_thread(service.glossaries.delete, CALLER.get(), name)


async def _glossary_terms(service: Service, id: str | None, source: str | None, target: str) -> dict[str, str] | None:
    """The terms of the glossary with this id, None without an id; InputError for a glossary of other languages."""
    if not id:
        return None
    stored = await asyncio.to_thread(service.glossaries.get, CALLER.get(), id)
    pair = tuple(stored.fields[side].partition("-")[0] for side in ("source_lang", "target_lang"))
    if source is None or pair != tuple(language_code(code).partition("-")[0] for code in (source, target)):
        raise InputError(f"the glossary translates from {pair[0]} to {pair[1]}: name these languages")
    return dict(json.loads(stored.content))


def _glossary_fields(stored: ClientFile) -> dict[str, Any]:
    fields = dict(stored.fields)
    created = datetime.fromtimestamp(fields.pop("created"), timezone.utc).isoformat()
    return {"glossary_id": stored.id, "ready": True, **fields, "creation_time": created}


@router.post("/document")
async def upload(
    service: InjectedService,
    file: Annotated[UploadFile, File()],
    target_lang: Annotated[str, Form()],
    source_lang: Annotated[str, Form()] = AUTO,
    filename: Annotated[str, Form()] = "",
    glossary_id: Annotated[str, Form()] = "",
) -> dict[str, str]:
    """Translate the document, then answer with the id of the translation."""
    glossary, content = await _glossary_terms(service, glossary_id, source_lang, target_lang), await file.read()
    name = filename or file.filename or ""
    stored = await service.translate_upload(name, content, source_lang, target_lang, glossary)
    return {"document_id": stored.id, "document_key": stored.id}


@router.post("/document/{name}")
async def document_status(name: str, service: InjectedService) -> dict[str, Any]:
    stored = await asyncio.to_thread(service.documents.get, CALLER.get(), name)
    return {"document_id": stored.id, "status": "done", "billed_characters": stored.fields["characters"]}


@router.post("/document/{name}/result")
async def document_result(name: str, service: InjectedService) -> Response:
    stored = await asyncio.to_thread(service.documents.get, CALLER.get(), name)
    await asyncio.to_thread(service.documents.delete, CALLER.get(), name)
    return Response(stored.content, media_type=stored.fields["media_type"])


@router.get("/languages")
async def languages(service: InjectedService, type: Literal["source", "target"] = "source") -> list[dict[str, Any]]:
    codes = sorted({target if type == "target" else source for source, target in service.pairs})
    formality = {"supports_formality": False} if type == "target" else {}
    return [{"language": code.upper(), "name": name_of(code), **formality} for code in codes]


@router.get("/usage")
async def usage() -> dict[str, int]:
    """The characters of this minute that a key with a quota has used; without a quota, all since the process began."""
    used_characters, limit = QUOTA.get().usage()
    return {"character_count": used_characters, "character_limit": limit or UNLIMITED}


def error_body(status: int, message: str) -> dict[str, Any]:
    return {"message": message}
