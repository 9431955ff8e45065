"""The routes of Hugging Face's text-embeddings-inference."""

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field, StrictBool

from fastattn.serve.dialects.body import Body, Serving, as_list

router = APIRouter()
PATHS = ("/embed", "/rerank", "/predict", "/tokenize")
Texts = str | Annotated[list[str], Field(min_length=1)]
OneOrTwo = Annotated[list[str], Field(min_length=1, max_length=2)]


class EmbedBody(Body):
    inputs: Texts
    normalize: StrictBool = True
    truncate: StrictBool = False
    prompt_name: str | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None


class RerankBody(Body):
    query: str
    texts: Annotated[list[str], Field(min_length=1)]
    raw_scores: StrictBool = False
    return_text: StrictBool = False
    truncate: StrictBool = False


class PredictBody(Body):
    """A text; or a list of one text or of two that the model reads together; or a list of such lists."""

    inputs: str | OneOrTwo | Annotated[list[OneOrTwo], Field(min_length=1)]
    truncate: StrictBool = False


class TokenizeBody(Body):
    inputs: Texts
    add_special_tokens: StrictBool = True
    prompt_name: None = None


@router.post("/embed")
async def embed(body: EmbedBody, service: Serving) -> list[list[float]]:
    options: dict[str, Any] = {"normalize_embeddings": body.normalize, "truncate_dim": body.dimensions}
    if body.prompt_name is not None:
        options["prompt_name"] = body.prompt_name
    vectors_BD, _, _ = await service.embed(as_list(body.inputs), None, truncate=body.truncate, **options)
    vectors: list[list[float]] = vectors_BD.tolist()
    return vectors


@router.post("/rerank")
async def rerank(body: RerankBody, service: Serving) -> list[dict[str, Any]]:
    ranked = await service.rank(body.query, body.texts, body.raw_scores, body.truncate)
    answers = [{"index": entry["corpus_id"], "score": entry["score"]} for entry in ranked]
    if body.return_text:
        for entry in answers:
            entry["text"] = body.texts[entry["index"]]
    return answers


@router.post("/predict")
async def predict(body: PredictBody, service: Serving) -> list[Any]:
    if isinstance(body.inputs, list) and isinstance(body.inputs[0], list):
        return await service.classify([tuple(pair) for pair in body.inputs], body.truncate)
    (labels,) = await service.classify([tuple(as_list(body.inputs))], body.truncate)
    return labels


@router.post("/tokenize")
async def tokenize(body: TokenizeBody, service: Serving) -> list[list[dict[str, Any]]]:
    token_lists = await service.tokenize(as_list(body.inputs), body.add_special_tokens)
    return [
        [{"id": t.id, "text": t.token, "special": t.special, "start": t.span[0], "stop": t.span[1]} for t in tokens]
        for tokens in token_lists
    ]


def error_body(status: int, message: str) -> dict[str, Any]:
    kinds = {413: "Validation", 422: "Validation", 400: "Validation", 429: "Overloaded", 503: "Unhealthy"}
    return {"error": message, "error_type": kinds.get(status, "Backend")}
