"""The page at /, the routes that only this page asks, and the table of all routes at /docs."""

from html import escape
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from pydantic import Field

from fastattn.encoders.encoder import Encoder
from fastattn.serve.dialects.body import Body, InjectedService
from fastattn.serve.service import AUTO, MOST_ALTERNATIVES
from fastattn.text.languages import name_of

router = APIRouter()
# The page loads nothing from other servers and sends nothing to them.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class PageBody(Body):
    text: str
    source: str = AUTO
    target: str
    alternatives: Annotated[int, Field(ge=0, le=MOST_ALTERNATIVES)] = 0
    glossary: dict[str, str] | None = None
    html: bool = False


@router.get("/", response_class=HTMLResponse)
async def page() -> HTMLResponse:
    text = files("fastattn.serve").joinpath("page.html").read_text(encoding="utf-8")
    return HTMLResponse(text, headers={"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"})


@router.get("/docs", include_in_schema=False)
async def routes(request: Request) -> HTMLResponse:
    """A table of the routes. FastAPI's own page would load scripts from other servers."""
    rows = "".join(
        f"<tr><td>{method.upper()}<td><code>{escape(path)}</code><td>{escape(operation.get('summary', ''))}"
        for path, methods in request.app.openapi()["paths"].items()
        for method, operation in methods.items()
    )
    text = f"<!doctype html><html lang=en><title>fastattn's routes</title><h1>Routes</h1><table>{rows}</table>"
    text += "<p><a href=openapi.json>openapi.json</a> has every field and status."
    return HTMLResponse(text, headers={"Content-Security-Policy": POLICY})


@router.get("/api/models")
async def models(service: InjectedService) -> dict[str, Any]:
    """The pairs of languages that models translate, the languages' names, and the encoders."""
    pairs = sorted(service.pairs)
    codes = sorted({code for pair in pairs for code in pair})
    names = {code: name_of(code) for code in codes}
    return {"pairs": pairs, "names": names, "encoders": service.models.names_of((Encoder,))}


@router.post("/api/translate")
async def translate(body: PageBody, service: InjectedService) -> dict[str, Any]:
    """A translation, alternatives, and links of words: [start, end) in both texts, in characters.

    With tags or a glossary there are no alternatives, with tags no links.
    """
    texts, pair, glossary = [body.text], (body.source, body.target), body.glossary
    if body.html:
        (translation,) = await service.translate_text_documents(texts, "html", *pair, glossary=glossary)
    else:
        alternatives = 0 if glossary else body.alternatives
        call = service.translate(texts, *pair, alternatives=alternatives, with_links=True, glossary=glossary)
        (translation,) = await call
    return {
        "text": translation.text,
        "source": translation.source,
        "alternatives": translation.alternatives,
        "links": [{"source": link.source, "target": link.target} for link in translation.links],
    }
