"""The routes of each dialect, a file each; docs/serving.md names the servers that speak the dialects."""

from typing import Any

from fastattn.serve.dialects import (
    chat,
    completions,
    deepl,
    embeddings_inference,
    libretranslate,
    mcp,
    ollama,
    openai,
    page,
    rerank,
    responses,
)
from fastattn.serve.dialects.sampling import error_body as openai_error_body

# The server tries routes in this order, some 4 us each: what is asked most often comes first.
_DIALECTS = openai, libretranslate, deepl, embeddings_inference, chat, completions, responses, rerank, ollama, mcp, page
# The route with a key in its path matches other dialects' paths, so it comes last.
ROUTERS = [*(dialect.router for dialect in _DIALECTS), libretranslate.key_router]
# The beginning of a dialect's paths -> the function that makes its errors' bodies; other paths have LibreTranslate's.
_ERRORS = {
    "/v1/": openai_error_body,
    "/v2/": deepl.error_body,
    **dict.fromkeys(embeddings_inference.PATHS, embeddings_inference.error_body),
}


def error_body(path: str, status: int, message: str) -> dict[str, Any]:
    """The body of an answer that is an error, in the dialect of the request's path."""
    for beginning, make_body in _ERRORS.items():
        if path.startswith(beginning):
            return make_body(status, message)
    return {"error": message}
