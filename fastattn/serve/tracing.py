"""OpenTelemetry's traces: a span for each request, where OTEL_EXPORTER_OTLP_ENDPOINT names a collector."""

import os
import sys
import time
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import Scope

VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"


def span_writer() -> Callable[[Scope, str, int, float], None]:
    """(scope, route's path, status, seconds) -> None: writes the span of a request that has just ended.

    OpenTelemetry's own environment variables say where to; without a collector the function does nothing.
    """
    if not os.environ.get(VARIABLE):
        return lambda *request: None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.propagate import extract
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace import SpanKind, StatusCode
    except ImportError as error:
        sys.stderr.write(f"fastattn: no traces, though {VARIABLE} is set: {error.name} is missing\n")
        return lambda *request: None
    names = {"service.name": os.environ.get("OTEL_SERVICE_NAME", "fastattn")}
    provider = TracerProvider(resource=Resource.create(names))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracer = provider.get_tracer("fastattn")

    def write_span(scope: Scope, path: str, status: int, seconds: float) -> None:
        parent = extract(Headers(scope=scope))
        attributes = {"http.request.method": scope["method"], "http.route": path, "http.response.status_code": status}
        start = time.time_ns() - round(1e9 * seconds)
        span = tracer.start_span(f"{scope['method']} {path}", parent, SpanKind.SERVER, attributes, start_time=start)
        if status >= 500:
            span.set_status(StatusCode.ERROR)
        if error := sys.exc_info()[1]:
            span.record_exception(error)
        span.end()

    return write_span
