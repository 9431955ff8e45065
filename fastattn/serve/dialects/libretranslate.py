"""The routes of LibreTranslate, MTranServer, DeepLX, and custom servers for Immersive Translate.

The first three share /translate, which tells their bodies apart by the fields.
"""

import asyncio
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, File, Form, Request, Response, UploadFile
from pydantic import Discriminator, Field, Tag

from fastattn.errors import InputError
from fastattn.serve.dialects.body import Body, InjectedService, OnlyFalse, Texts, as_list
from fastattn.serve.service import AUTO, CALLER, DOCUMENT_FORMS, MOST_ALTERNATIVES
from fastattn.serve.settings import Refusal
from fastattn.text.languages import name_of

router = APIRouter()
key_router = APIRouter()


class LibreTranslateBody(Body):
    q: str | list[str]
    source: str = AUTO
    target: str
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Field(ge=0, le=MOST_ALTERNATIVES)] = 0
    api_key: str | None = None


class MTranServerBody(Body):
    source: Annotated[str, Field(alias="from")]
    target: Annotated[str, Field(alias="to")]
    text: str
    html: OnlyFalse = False


class MTranServerBatch(Body):
    source: Annotated[str, Field(alias="from")]
    target: Annotated[str, Field(alias="to")]
    texts: list[str]
    html: OnlyFalse = False


class DeepLXBody(Body):
    text: str
    source_lang: str = AUTO
    target_lang: str


class ImmersiveBody(Body):
    source_lang: str = AUTO
    target_lang: str
    text_list: Texts


class DetectBody(Body):
    q: str
    api_key: str | None = None


def _dialect_of(body: Any) -> str:
    fields = body if isinstance(body, dict) else getattr(body, "__dict__", {})
    if "target_lang" in fields:
        return "DeepLX"
    return "MTranServer" if "text" in fields else "LibreTranslate"


AnyBody = Annotated[
    Annotated[LibreTranslateBody, Tag("LibreTranslate")]
    | Annotated[MTranServerBody, Tag("MTranServer")]
    | Annotated[DeepLXBody, Tag("DeepLX")],
    Discriminator(_dialect_of),
]


@router.post("/translate", summary="LibreTranslate's, MTranServer's and DeepLX's")
async def translate(body: AnyBody, service: InjectedService) -> dict[str, Any]:
    if isinstance(body, DeepLXBody):
        return await deeplx("", body, service)
    if isinstance(body, MTranServerBody):
        (translation,) = await service.translate([body.text], body.source, body.target)
        return {"result": translation.text}
    texts, pair = as_list(body.q), (body.source, body.target)
    if body.format == "html":
        if body.alternatives:
            raise InputError("alternatives go with format text")
        translations = await service.translate_text_documents(texts, "html", *pair)
    else:
        translations = await service.translate(texts, *pair, alternatives=body.alternatives)
    answer: dict[str, Any] = {"translatedText": [translation.text for translation in translations]}
    if body.alternatives:
        answer["alternatives"] = [list(translation.alternatives) for translation in translations]
    if body.source == AUTO:
        detected = (translation.detected for translation in translations)
        answer["detectedLanguage"] = [asdict(language) for language in detected if language]
    return answer if isinstance(body.q, list) else {name: values[0] for name, values in answer.items()}


@key_router.post("/{token}/translate", summary="DeepLX's, with a key in the path")
async def deeplx(token: str, body: DeepLXBody, service: InjectedService) -> dict[str, Any]:
    # The gate has checked the token.
    source = body.source_lang or AUTO
    (translation,) = await service.translate([body.text], source.lower(), body.target_lang, alternatives=3)
    return {
        "code": 200,
        "id": 0,
        "data": translation.text,
        "alternatives": list(translation.alternatives),
        "source_lang": translation.source.upper(),
        "target_lang": translation.target.upper(),
        "method": "Free",
    }


@router.post("/translate/batch", summary="MTranServer's")
async def translate_batch(body: MTranServerBatch, service: InjectedService) -> dict[str, Any]:
    translations = await service.translate(body.texts, body.source, body.target)
    return {"results": [translation.text for translation in translations]}


@router.post("/imme", summary="Immersive Translate's")
async def translate_page(body: ImmersiveBody, service: InjectedService) -> dict[str, Any]:
    translations = await service.translate(body.text_list, body.source_lang or AUTO, body.target_lang)
    entries = [{"detected_source_lang": translation.source, "text": translation.text} for translation in translations]
    return {"translations": entries}


@router.post("/translate_file")
async def translate_file(
    request: Request,
    service: InjectedService,
    file: Annotated[UploadFile, File()],
    target: Annotated[str, Form()],
    source: Annotated[str, Form()] = AUTO,
) -> dict[str, str]:
    stored = await service.translate_upload(file.filename or "", await file.read(), source, target)
    return {"translatedFileUrl": f"{request.base_url}download_file/{stored.id}"}


@router.get("/download_file/{name}")
async def download_file(name: str, service: InjectedService) -> Response:
    stored = await asyncio.to_thread(service.documents.get, CALLER.get(), name)
    return Response(stored.content, media_type=stored.fields["media_type"])


@router.post("/suggest")
async def suggest() -> None:
    """Refused as by a LibreTranslate that collects no suggestions, which /frontend/settings says too."""
    raise Refusal(403, "Suggestions are disabled on this server.")


@router.get("/languages")
async def languages(service: InjectedService) -> list[dict[str, Any]]:
    pairs = sorted(service.pairs)
    return [
        {"code": code, "name": name_of(code), "targets": [target for source, target in pairs if source == code]}
        for code in dict.fromkeys(source for source, _ in pairs)
    ]


@router.post("/detect")
async def detect(body: DetectBody, service: InjectedService) -> list[dict[str, Any]]:
    service.check_size([body.q])()
    return [asdict(language) for language in await service.detect(body.q)]


@router.get("/frontend/settings")
async def frontend_settings(service: InjectedService) -> dict[str, Any]:
    return {
        "apiKeys": bool(service.settings.keys),
        "charLimit": service.settings.characters,
        "batchLimit": service.settings.items,
        "keyRequired": bool(service.settings.keys),
        "suggestions": False,
        "filesTranslation": True,
        "supportedFilesFormat": [f".{form}" for form in DOCUMENT_FORMS],
        "language": {"source": {"code": AUTO, "name": "Auto"}, "target": {"code": "", "name": ""}},
    }


@router.get("/health")
@router.get("/ping", summary="text-embeddings-inference's")
async def health() -> dict[str, str]:
    return {"status": "ok"}
