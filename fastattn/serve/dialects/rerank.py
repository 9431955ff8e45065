"""Texts ranked for a query: the routes of Jina, Cohere and vLLM."""

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field, StrictBool

from fastattn.errors import InputError
from fastattn.serve.dialects.body import Body, InjectedService, TextOrTexts, as_list
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
    text_1: TextOrTexts
    text_2: TextOrTexts


@router.post("/v1/rerank", summary="Jina's and vLLM's")
@router.post("/v2/rerank", summary="Cohere's")
async def rerank(body: RankBody, service: InjectedService) -> dict[str, Any]:
    """The documents by their scores, best first; documents that are too long are cut, as by Jina, Cohere and vLLM."""
    texts = [document if isinstance(document, str) else document.text for document in body.documents]
    ranking, usage, name = await service.rank(body.query, texts, raw=False, truncate=True, model=body.model)
    results: list[dict[str, Any]] = [
        {"index": number, "relevance_score": score} for number, score in ranking[: body.top_n]
    ]
    for result in results if body.return_documents else ():
        result["document"] = {"text": texts[result["index"]]}
    searches = -(-len(texts) // 100)  # Cohere counts a hundred documents as a search
    meta = {"api_version": {"version": "2"}, "billed_units": {"search_units": searches}}
    return {**head_of("rerank", name), "results": results, "usage": usage, "meta": meta}


@router.post("/v1/score", summary="vLLM's")
@router.post("/score", summary="vLLM's")
async def score(body: ScoreBody, service: InjectedService) -> dict[str, Any]:
    """The score of each pair: of the one text of text_1 with each of text_2, or of two lists side by side."""
    texts_1, texts_2 = as_list(body.text_1), as_list(body.text_2)
    if len(texts_1) == 1:
        texts_1 *= len(texts_2)
    if len(texts_1) != len(texts_2):
        raise InputError(f"text_1 should have one text, or as many as text_2, {len(texts_2)}; has {len(texts_1)}")
    scores, usage, name = await service.score_pairs(list(zip(texts_1, texts_2)), model=body.model)
    data = [{"index": number, "object": "score", "score": value} for number, value in enumerate(scores)]
    return {**head_of("score", name), "object": "list", "data": data, "usage": usage}
