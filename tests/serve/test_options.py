"""Each option of the command arrives in the server's settings."""

import click
import pytest

from fastattn.cli.serve import serve
from fastattn.serve import server
from fastattn.serve.settings import ServerSettings
from tests.cli.commands import run

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
    "--cors": (("https://a.example",), {"origins": ("https://a.example",)}),
    "--log-texts": ((), {"log_texts": True}),
}


@pytest.fixture
def started(monkeypatch):
    """What servers were started with."""
    seen = {}

    def run_server(settings, host, port):
        settings.publish()
        assert ServerSettings.published() == settings
        seen.update(vars(settings), host=host, port=port)

    monkeypatch.setenv("FASTATTN_SERVE", "")
    monkeypatch.setattr(server, "run_server", run_server)
    return seen


def test_every_option_has_a_case():
    options = [max(one.opts, key=len) for one in serve.params if isinstance(one, click.Option)]
    assert options == [*CASES]


@pytest.mark.parametrize("name", CASES)
def test_every_option_arrives(started, name):
    value, expected = CASES[name]
    assert run("serve", *BEFORE).exit_code == 0
    assert not expected.items() <= started.items()
    assert run("serve", *BEFORE, name, *value).exit_code == 0
    assert expected.items() <= started.items()


@pytest.mark.parametrize(
    "model, named", [("./folder/x.gguf", "x"), ("de-en=/a=b", "de-en"), ("/a/b=c", "b=c"), ("OWNER/NAME", "NAME")]
)
def test_models_have_names(started, model, named):
    run("serve", "-m", model)
    assert started["models"] == ((named, model.removeprefix("de-en=")),)
