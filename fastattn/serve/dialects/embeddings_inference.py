"""The routes of Hugging Face's text-embeddings-inference."""

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field, StrictBool

from fastattn._version import VERSION
from fastattn.encoders.cross_encoder import CrossEncoder
from fastattn.encoders.encoder import Encoder
from fastattn.encoders.sparse_encoder import SparseEncoder
from fastattn.encoders.text_classifier import TextClassifier
from fastattn.serve.dialects.body import (
    Body,
    InjectedService,
    OnlyFalse,
    OnlyTrue,
    TextOrTexts,
    Texts,
    TokenIds,
    as_list,
)
from fastattn.serve.service import ModelAnswers
from fastattn.serve.settings import Refusal

router = APIRouter()
PATHS = ("/embed", "/rerank", "/predict", "/tokenize", "/decode", "/similarity", "/info")
OneOrTwo = Annotated[list[str], Field(min_length=1, max_length=2)]


class EmbedBody(Body):
    inputs: TextOrTexts
    normalize: StrictBool = True
    truncate: StrictBool = False
    prompt_name: str | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None


class AllBody(Body):
    inputs: TextOrTexts
    truncate: StrictBool = False
    prompt_name: None = None


class RerankBody(Body):
    query: str
    texts: Texts
    raw_scores: StrictBool = False
    return_text: StrictBool = False
    truncate: StrictBool = False


class PredictBody(Body):
    """A text, or a list of one text or of two texts that the model reads together, or a list of such lists."""

    inputs: str | OneOrTwo | Annotated[list[OneOrTwo], Field(min_length=1)]
    truncate: StrictBool = False


class SimilarityInputs(Body):
    source_sentence: str
    sentences: Texts


class SimilarityParameters(Body):
    truncate: StrictBool | None = None
    prompt_name: str | None = None


class SimilarityBody(Body):
    inputs: SimilarityInputs
    parameters: SimilarityParameters = SimilarityParameters()


class RootParameters(Body):
    max_new_tokens: Annotated[int, Field(ge=1)] | None = None


class RootBody(Body):
    inputs: TextOrTexts | SimilarityInputs
    parameters: RootParameters = RootParameters()
    stream: OnlyFalse = False


class DecodeBody(Body):
    ids: Annotated[TokenIds | list[TokenIds], Field(min_length=1)]
    skip_special_tokens: OnlyTrue = True


class TokenizeBody(Body):
    inputs: TextOrTexts
    add_special_tokens: StrictBool = True
    prompt_name: None = None


@router.post("/embed")
async def embed(body: EmbedBody, service: InjectedService) -> list[list[float]]:
    options: dict[str, Any] = {"normalize_embeddings": body.normalize, "truncate_dim": body.dimensions}
    options |= {"truncate": body.truncate, "prompt_name": body.prompt_name}
    vectors_BD, _, _ = await service.embed(as_list(body.inputs), None, **options)
    vectors: list[list[float]] = vectors_BD.tolist()
    return vectors


@router.post("/rerank")
async def rerank(body: RerankBody, service: InjectedService) -> list[dict[str, Any]]:
    ranking, _, _ = await service.rank(body.query, body.texts, raw=body.raw_scores, truncate=body.truncate)
    entries: list[dict[str, Any]] = [{"index": number, "score": score} for number, score in ranking]
    for entry in entries if body.return_text else ():
        entry["text"] = body.texts[entry["index"]]
    return entries


@router.post("/embed_all")
async def embed_all(body: AllBody, service: InjectedService) -> list[list[list[float]]]:
    """A vector for each token of each text."""
    return [vectors_TD.tolist() for vectors_TD in await service.embed_tokens(as_list(body.inputs), body.truncate)]


@router.post("/embed_sparse")
async def embed_sparse(body: EmbedBody, service: InjectedService) -> list[list[dict[str, Any]]]:
    rows = await service.embed_sparse(as_list(body.inputs), body.truncate, prompt_name=body.prompt_name)
    pairs = (zip(columns.tolist(), numbers.tolist()) for columns, numbers in rows)
    return [[{"index": column, "value": number} for column, number in row_pairs] for row_pairs in pairs]


@router.post("/similarity")
async def similarity(body: SimilarityBody, service: InjectedService) -> list[float]:
    options = {"truncate": bool(body.parameters.truncate), "prompt_name": body.parameters.prompt_name}
    return await service.similarities(body.inputs.source_sentence, body.inputs.sentences, **options)


@router.post("/", summary="huggingface_hub's InferenceClient, by its base_url")
async def ask(body: RootBody, service: InjectedService) -> Any:
    """Similarities for sentences; vectors, if an encoder is served and there is no max_new_tokens; or continuations."""
    if isinstance(body.inputs, SimilarityInputs):
        return await service.similarities(body.inputs.source_sentence, body.inputs.sentences, truncate=True)
    texts, max_tokens = as_list(body.inputs), body.parameters.max_new_tokens
    if max_tokens is None and service.models.names_of((Encoder,)):
        return (await service.embed(texts, None, truncate=True))[0].tolist()
    options: dict[str, Any] = {} if max_tokens is None else {"max_new_tokens": max_tokens}

    def finish(answers: ModelAnswers) -> Any:
        entries = [{"generated_text": generation.text} for generation in answers.generations]
        return entries if isinstance(body.inputs, list) else entries[0]

    return await service.complete(None, texts, finish, **options)


@router.post("/predict")
async def predict(body: PredictBody, service: InjectedService) -> list[Any]:
    if isinstance(body.inputs, list) and isinstance(body.inputs[0], list):
        return await service.classify([tuple(pair) for pair in body.inputs], body.truncate)
    (labels,) = await service.classify([tuple(as_list(body.inputs))], body.truncate)
    return labels


@router.post("/tokenize")
async def tokenize(body: TokenizeBody, service: InjectedService) -> list[list[dict[str, Any]]]:
    token_lists = await service.tokenize(as_list(body.inputs), body.add_special_tokens)
    return [
        [{"id": t.id, "text": t.token, "special": t.special, "start": t.span[0], "stop": t.span[1]} for t in tokens]
        for tokens in token_lists
    ]


@router.post("/decode")
async def decode(body: DecodeBody, service: InjectedService) -> list[str]:
    ids: Any = body.ids
    return await service.decode([ids] if isinstance(ids[0], int) else ids)


@router.get("/info")
async def info(service: InjectedService) -> dict[str, Any]:
    """The encoder, classifier or reranker that the routes without a model's name ask."""
    name = next(iter(service.models.names_of((Encoder, CrossEncoder, TextClassifier, SparseEncoder))), None)
    if name is None:
        raise Refusal(404, "this server has no encoder")
    model_types: dict[type, Any] = {
        Encoder: {"embedding": {"pooling": "model"}},
        SparseEncoder: {"embedding": {"pooling": "splade"}},
        CrossEncoder: {"reranker": {}},
        TextClassifier: {"classifier": {}},
    }
    async with service.models.use(name) as model:
        return {
            "model_id": name,
            "model_sha": None,
            "model_dtype": service.settings.precision,
            "model_type": model_types[service.models.entries[name].kind],
            "max_concurrent_requests": service.settings.requests,
            "max_input_length": model.max_length,
            "max_client_batch_size": service.settings.items,
            "version": VERSION,
        }


def error_body(status: int, message: str) -> dict[str, Any]:
    error_types = {413: "Validation", 422: "Validation", 400: "Validation", 429: "Overloaded", 503: "Unhealthy"}
    return {"error": message, "error_type": error_types.get(status, "Backend")}
