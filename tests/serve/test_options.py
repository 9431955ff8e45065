"""Each option of the command arrives in the server's settings."""

import click
import pytest

from fastattn.cli.serve import serve
from fastattn.serve import server
from fastattn.serve.dialects import mcp
from fastattn.serve.settings import ServerSettings
from tests.cli.commands import fail, refuse, run

BEFORE = ("-m", "a")
CASES = {
    "--model": (("name=./x.gguf",), {"models": (("a", "a"), ("name", "./x.gguf"))}),
    "--host": (("0.0.0.0",), {"host": "0.0.0.0"}),
    "--port": (("81",), {"port": 81}),
    "--lazy": ((), {"lazy": True}),
    "--idle": (("2",), {"idle": 120.0}),
    "--processes": (("3",), {"processes": 3}),
    "--threads": (("5",), {"threads": 5}),
    "--precision": (("int8",), {"precision": "int8"}),
    "--keys": (("k",), {"keys": "k"}),
    "--max-characters": (("9",), {"characters": 9}),
    "--max-items": (("8",), {"items": 8}),
    "--max-requests": (("7",), {"requests": 7}),
    "--timeout": (("6.5",), {"timeout": 6.5}),
    "--proxy": (("10.0.0.0/8",), {"proxies": ("10.0.0.0/8",)}),
    "--cors": (("https://a.example",), {"origins": ("https://a.example",)}),
    "--log-texts": ((), {"log_texts": True}),
    "--mcp": ((), {"stdio": True}),
    "--strict": ((), {"strict": True}),
}


@pytest.fixture
def started(monkeypatch):
    """What servers were started with."""
    seen = {}

    def run_server(settings, host, port):
        seen.update(vars(settings), host=host, port=port)

    monkeypatch.setattr(server, "run_server", run_server)
    monkeypatch.setattr(mcp, "run_stdio", lambda settings: seen.update(vars(settings), stdio=True))
    return seen


def test_every_option_arrives(started):
    assert [max(one.opts, key=len) for one in serve.params if isinstance(one, click.Option)] == [*CASES]
    for name, (value, expected) in CASES.items():
        assert run("serve", *BEFORE).exit_code == 0
        assert not expected.items() <= started.items(), name
        assert run("serve", *BEFORE, name, *value).exit_code == 0
        assert expected.items() <= started.items(), name


def test_models_have_names(started):
    for model, named in (("./folder/x.gguf", "x"), ("de-en=/a=b", "de-en"), ("/a/b=c", "b=c"), ("OWNER/NAME", "NAME")):
        run("serve", "-m", model)
        assert started["models"] == ((named, model.removeprefix("de-en=")),)


def test_what_is_wrong_is_said_before_anything_starts(tmp_path):
    assert "Missing option '-m'" in fail(2, "serve")
    for proxies in (["localhost"], ["10.0.0.0/33"], ["*", "10.0.0.1"]):
        options = [word for proxy in proxies for word in ("--proxy", proxy)]
        assert "--proxy should be an address" in fail(2, "serve", *BEFORE, *options)
    for code, line in ((3, "-m no-such-model"), (2, "-m a=x -m a=y"), (2, f"-m a --keys {tmp_path}/none")):
        refuse(code, "serve", *line.split())


def test_processes_share_the_threads(monkeypatch):
    """Each gets its part, unless it is told how many."""
    seen = []
    monkeypatch.setattr(server, "default_threads", lambda: 7)
    monkeypatch.setattr(server.ServedModel, "read_kind", lambda one: None)
    monkeypatch.setattr(server, "_make_app", lambda settings: seen.append(settings.threads))
    monkeypatch.setattr(server.uvicorn, "Config", lambda app, **options: app() or 1 / 0)
    for processes, threads, each in ((1, None, None), (2, None, 3), (9, None, 1), (2, 5, 5)):
        settings = ServerSettings((("a", "a"),), processes=processes, threads=threads)
        with pytest.raises(ZeroDivisionError):
            server.run_server(settings, "127.0.0.1", 0)
        assert seen.pop() == each
