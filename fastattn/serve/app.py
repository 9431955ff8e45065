"""The ASGI application: the routes of all dialects behind the gate."""

import os
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest, multiprocess
from prometheus_client.registry import REGISTRY
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from fastattn._version import VERSION
from fastattn.errors import FastattnError, InputError, QueueFullError
from fastattn.serve.dialects import ROUTERS, error_body
from fastattn.serve.dialects.body import describe
from fastattn.serve.gate import Gate
from fastattn.serve.service import Service
from fastattn.serve.settings import Refusal, ServerSettings

# HTTP status -> its meaning, of each error that any route may answer with.
STATUSES = {
    400: "what is wrong with the request",
    403: "no key, or one that is not known",
    404: "no such model or route",
    408: "the request came too slowly",
    413: "more text than a request may have",
    431: "longer headers than a request may have",
    429: "too much is going on, or a key's quota is used up: Retry-After says when to come again",
    503: "a model cannot be loaded",
    504: "no answer in time",
}


def make_app(settings: ServerSettings) -> Any:
    service = Service(settings)
    responses: dict[int | str, Any] = {status: {"description": meaning} for status, meaning in STATUSES.items()}
    options: dict[str, Any] = {"docs_url": None, "redoc_url": None, "lifespan": lambda app: service.running()}
    app: Any = FastAPI(title="fastattn", version=VERSION, responses=responses, **options)
    app.state.service = service
    for route in (route for router in ROUTERS for route in router.routes):
        route.responses = responses
        app.router.routes.append(route)  # include_router would nest the routers, and match each level of them twice
    app.add_api_route("/metrics", _metrics, include_in_schema=False)
    for error_class in (FastattnError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(error_class, _error_response)
    known_paths = {route.path for route in app.routes}

    def route_path(scope: Scope) -> str:
        path = str(getattr(scope.get("route"), "path", scope["path"]))
        return path if path in known_paths else "other"

    gate = Gate(app, settings, error_body, route_path)
    if not settings.origins:
        return gate
    methods, headers, exposed_headers = ["*"], ["*"], ["Retry-After", "X-Request-ID"]
    return CORSMiddleware(gate, settings.origins, methods, headers, expose_headers=exposed_headers, max_age=600)


def _error_response(request: Request, error: Exception) -> Response:
    status, message, headers = 500, "the server has a fault, which its log has", dict[str, str]()
    if isinstance(error, RequestValidationError):
        status, message = 400, describe(error.errors(), 1)  # places begin with "body" or the like
    elif isinstance(error, HTTPException):
        status, message, headers = error.status_code, str(error.detail), dict(error.headers or {})
        if status == 405:  # Starlette names the methods of one of the path's routes
            fitting = (route for route in request.app.routes if route.path_regex.match(request.url.path))
            headers["allow"] = ", ".join(sorted({method for route in fitting for method in route.methods}))
    elif isinstance(error, Refusal):
        status, message, headers = error.status, str(error), error.headers
    elif isinstance(error, QueueFullError):
        status, message, headers = 429, str(error), {"Retry-After": "1"}
    elif isinstance(error, FastattnError):
        status, message = 400 if isinstance(error, InputError) else 500, str(error)
    return JSONResponse(error_body(request.url.path, status, message), status, headers)


async def _metrics() -> Response:
    """The metrics of all worker processes, in Prometheus' text format."""
    registry = REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
