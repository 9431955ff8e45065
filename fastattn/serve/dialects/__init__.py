"""The routes of each dialect, a file each; docs/serving.md says which comes from whom."""

from typing import Any

from fastattn.serve.dialects import (
    chat,
    completions,
    deepl,
    embeddings_inference,
    libretranslate,
    ollama,
    openai,
    page,
    rerank,
)
from fastattn.serve.dialects.sampling import error_body as openai_error_body

# DeepLX has any first part of a path, so it comes last.
_DIALECTS = (deepl, openai, chat, completions, rerank, ollama, embeddings_inference, page, libretranslate)
ROUTERS = [dialect.router for dialect in _DIALECTS]
# The beginnings of a dialect's paths, and what its errors look like; LibreTranslate's for the rest.
_ERRORS = {
    "/v1/": openai_error_body,
    "/v2/": deepl.error_body,
    **dict.fromkeys(embeddings_inference.PATHS, embeddings_inference.error_body),
}


def error_body(path: str, status: int, message: str) -> dict[str, Any]:
    """What an answer says that is an error, in the dialect of its path."""
    for beginning, body in _ERRORS.items():
        if path.startswith(beginning):
            return body(status, message)
    return {"error": message}
