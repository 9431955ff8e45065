"""DeepL's routes, for DeepL's own client and others that speak like it."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field

from fastattn.serve.dialects.body import Body, Serving, as_list
from fastattn.serve.service import AUTO, QUOTA
from fastattn.text.languages import name_of

router = APIRouter(prefix="/v2")
UNLIMITED = 10**12  # what DeepL answers as the limit of a key without a limit


class DeepLBody(Body):
    """An option that would change a translation and is not supported is refused; one that only prefers is ignored."""

    text: Annotated[str | list[str], Field(min_length=1)]
    target_lang: str
    source_lang: str | None = None
    split_sentences: Literal["0", "1"] = "1"
    preserve_formatting: bool = True
    formality: Literal["default", "prefer_more", "prefer_less"] = "default"
    context: str | None = None  # ignored: no model here reads it
    show_billed_characters: bool = False
    model_type: str | None = None
    auth_key: str = ""


@router.post("/translate")
async def translate(body: DeepLBody, service: Serving) -> dict[str, Any]:
    source = body.source_lang or AUTO
    options: dict[str, Any] = {"split": "never"} if body.split_sentences == "0" else {}
    texts = as_list(body.text)
    translations = await service.translate(texts, source, body.target_lang, **options)
    answers: list[dict[str, Any]] = []
    for text, translation in zip(texts, translations):
        answers.append({"detected_source_language": translation.source.upper(), "text": translation.text})
        if body.show_billed_characters:
            answers[-1]["billed_characters"] = len(text)
    return {"translations": answers}


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
