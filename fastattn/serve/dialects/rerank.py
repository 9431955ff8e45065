"""Texts ranked for a query: the routes of Jina, Cohere and vLLM."""

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field, StrictBool

from fastattn.errors import InputError
from fastattn.serve.dialects.body import Body, Serving, as_list
from fastattn.serve.dialects.sampling import head_of

router = APIRouter()


class TextDocument(Body):
    text: str


class RankBody(Body):
    model: str | None = None
    query: str
    documents: Annotated[list[str | TextDocument], Field(min_length=1)]
    top_n: Annotated[int, Field(ge=1)] | None = None
    return_documents: StrictBool = False


class ScoreBody(Body):
    model: str | None = None
    text_1: str | Annotated[list[str], Field(min_length=1)]
    text_2: str | Annotated[list[str], Field(min_length=1)]


@router.post("/v1/rerank", summary="Jina's and vLLM's")
@router.post("/v2/rerank", summary="Cohere's")
async def rerank(body: RankBody, service: Serving) -> dict[str, Any]:
    """The documents by their scores, best first; longer ones are cut, as those servers do."""
    texts = [document if isinstance(document, str) else document.text for document in body.documents]
    ranked, name = await service.rank(body.query, texts, raw=False, truncate=True, model=body.model)
    results: list[dict[str, Any]] = [
        {"index": number, "relevance_score": score} for number, score in ranked[: body.top_n]
    ]
    for result in results if body.return_documents else ():
        result["document"] = {"text": texts[result["index"]]}
    return {**head_of("rerank", name), "results": results}


@router.post("/v1/score", summary="vLLM's")
@router.post("/score", summary="vLLM's")
async def score(body: ScoreBody, service: Serving) -> dict[str, Any]:
    """The score of each pair: of the one text with each of the others, or of two lists side by side."""
    first, second = as_list(body.text_1), as_list(body.text_2)
    if len(first) == 1:
        first *= len(second)
    if len(first) != len(second):
        raise InputError(f"text_1 should have one text, or as many as text_2, {len(second)}; has {len(first)}")
    scores, name = await service.score_pairs(list(zip(first, second)), model=body.model)
    data = [{"index": number, "object": "score", "score": value} for number, value in enumerate(scores)]
    return {**head_of("score", name), "object": "list", "data": data}
