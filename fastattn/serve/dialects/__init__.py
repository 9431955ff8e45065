"""The routes of each dialect, a file each; docs/serving.md says which comes from whom."""

from typing import Any

from fastattn.serve.dialects import deepl, embeddings_inference, libretranslate, openai, page

# DeepLX has any first part of a path, so it comes last.
ROUTERS = (deepl.router, openai.router, embeddings_inference.router, page.router, libretranslate.router)
# The beginnings of a dialect's paths, and what its errors look like; LibreTranslate's for the rest.
_ERRORS = {
    "/v1/": openai.error_body,
    "/v2/": deepl.error_body,
    **dict.fromkeys(embeddings_inference.PATHS, embeddings_inference.error_body),
}


def error_body(path: str, status: int, message: str) -> dict[str, Any]:
    """What an answer says that is an error, in the dialect of its path."""
    for beginning, body in _ERRORS.items():
        if path.startswith(beginning):
            return body(status, message)
    return {"error": message}
