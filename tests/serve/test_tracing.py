"""Spans of OpenTelemetry, where the environment names a collector."""

import sys
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from fastattn.serve.tracing import VARIABLE, span_writer
from tests.serve.recorders import MODELS, record_models
from tests.serve.serving import serving

EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
TRACE, CALLER_SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def spans(monkeypatch):
    """A function that returns the spans which the collector has got."""
    reason = "needs opentelemetry-sdk"
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter", reason=reason)
    export = pytest.importorskip("opentelemetry.sdk.trace.export", reason=reason)
    collector = memory.InMemorySpanExporter()
    monkeypatch.setitem(sys.modules, EXPORTER, SimpleNamespace(OTLPSpanExporter=lambda: collector))
    monkeypatch.setattr(export, "BatchSpanProcessor", export.SimpleSpanProcessor)  # exports at a span's end
    monkeypatch.setenv(VARIABLE, "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "a server")
    return collector.get_finished_spans


def test_each_request_is_a_span(spans, monkeypatch):
    record_models(monkeypatch)
    with serving(models=MODELS) as asked:
        asked.post("/embed", {"inputs": "a"}, traceparent=f"00-{TRACE}-{CALLER_SPAN}-01")
        asked.raw("GET", "/v2/glossaries/nothing")
        asked.raw("GET", "/nowhere")
    expected = [("POST", "/embed", 200), ("GET", "/v2/glossaries/{name}", 404), ("GET", "other", 404)]
    for span, (method, route, status) in zip(spans(), expected, strict=True):
        assert (span.name, span.kind.name) == (f"{method} {route}", "SERVER")
        assert span.resource.attributes["service.name"] == "a server"
        assert dict(span.attributes) == {
            "http.request.method": method, "http.route": route, "http.response.status_code": status
        }  # fmt: skip
    first, second, _ = spans()
    assert (f"{first.context.trace_id:032x}", f"{first.parent.span_id:016x}") == (TRACE, CALLER_SPAN)
    assert second.parent is None and second.context.trace_id != first.context.trace_id


def test_a_request_that_fails_is_a_span_too(spans, monkeypatch):
    record_models(monkeypatch)
    monkeypatch.setattr("fastattn.serve.dialects.page.name_of", Mock(side_effect=RuntimeError("a fault")))
    with serving(models=MODELS) as asked:
        assert asked.raw("GET", "/api/models")[0] == 500
    (span,) = spans()
    assert (span.name, span.status.status_code.name) == ("GET /api/models", "ERROR")
    assert span.events[0].attributes["exception.message"] == "a fault"


def test_without_a_collector_or_the_packages_there_are_no_spans(monkeypatch, capsys):
    monkeypatch.delenv(VARIABLE, raising=False)
    span_writer()({}, "", 200, 0.0)
    assert not capsys.readouterr().err
    monkeypatch.setenv(VARIABLE, "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, EXPORTER, None)
    span_writer()({}, "", 200, 0.0)
    assert capsys.readouterr().err == f"fastattn: no traces, though {VARIABLE} is set: {EXPORTER} is missing\n"
