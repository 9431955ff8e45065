"""OpenAI's routes for vectors and for the list of models."""

import base64
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field

from fastattn.encoders.encoder import Encoder
from fastattn.generation.generator import Generator
from fastattn.serve.dialects.body import Body, InjectedService, TokenIds

router = APIRouter(prefix="/v1")


class EmbeddingsBody(Body):
    input: Annotated[str | TokenIds | list[str] | list[TokenIds], Field(union_mode="left_to_right")]
    model: str
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: str | None = None


@router.post("/embeddings")
async def embeddings(body: EmbeddingsBody, service: InjectedService) -> dict[str, Any]:
    is_single = isinstance(body.input, str) or bool(body.input) and isinstance(body.input[0], int)
    texts: list[Any] = [body.input] if is_single else list(body.input)
    options = {"truncate_dim": body.dimensions, "normalize_embeddings": True} if body.dimensions else {}
    vectors_BD, token_count, name = await service.embed(texts, body.model, truncate=False, count=True, **options)
    base64_vectors = (base64.b64encode(vector_D.astype("<f4").tobytes()).decode() for vector_D in vectors_BD)
    vectors: Any = base64_vectors if body.encoding_format == "base64" else vectors_BD.tolist()
    data = [{"object": "embedding", "index": b, "embedding": vector} for b, vector in enumerate(vectors)]
    usage = {"prompt_tokens": token_count, "total_tokens": token_count}
    return {"object": "list", "data": data, "model": name, "usage": usage}


@router.get("/models")
async def models(service: InjectedService) -> dict[str, Any]:
    names = service.models.names_of((Encoder, Generator))
    return {"object": "list", "data": [{"id": name, "object": "model", "owned_by": "fastattn"} for name in names]}
