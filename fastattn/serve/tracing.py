"""OpenTelemetry's traces: a span for each request, where OTEL_EXPORTER_OTLP_ENDPOINT names a collector."""

import os
import sys
from collections.abc import Callable, MutableMapping
from typing import Any

VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"


def traced(app: Any, route_path: Callable[[MutableMapping[str, Any]], str]) -> Any:
    """The application, with a span for each request by OpenTelemetry's own environment variables.

    route_path  (scope) -> the path of the request's route
    """
    if not os.environ.get(VARIABLE):
        return app
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.propagate import extract
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace import SpanKind
    except ImportError as error:
        sys.stderr.write(f"fastattn: no traces, though {VARIABLE} is set: {error.name} is missing\n")
        return app
    provider = TracerProvider(
        resource=Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "fastattn")})
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracer = provider.get_tracer("fastattn")

    async def answer(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        parent = extract({name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]})
        name = f"{scope['method']} {route_path(scope)}"
        with tracer.start_as_current_span(name, parent, SpanKind.SERVER) as span:

            async def send_and_note(message: MutableMapping[str, Any]) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                await send(message)

            span.set_attribute("http.request.method", scope["method"])
            try:
                await app(scope, receive, send_and_note)
            finally:  # only now is the route of a path with variables known
                span.update_name(f"{scope['method']} {route_path(scope)}")
                span.set_attribute("http.route", route_path(scope))

    return answer
