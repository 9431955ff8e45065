"""``fastattn serve``: an HTTP server for clients of LibreTranslate, DeepL, MTranServer, OpenAI and others."""

from pathlib import PurePath
from typing import Any

import click

from fastattn.cli.interrupt import leave_signals
from fastattn.cli.options import Command, precision_option, threads_option
from fastattn.errors import FastattnError, InputError


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  fastattn serve -m en-pt -m pt-en
  fastattn serve -m zh-en -m minilm --port 8080 --processes 4
  fastattn serve -m de-en=./my-model -m chat=./my-llm.gguf --lazy --idle 30
  fastattn serve -m en-pt --host 0.0.0.0 --keys keys.txt
  curl -d q="Good morning." -d source=en -d target=pt localhost:5000/translate

\b
A page to try it is at http://localhost:5000/, the routes are at /docs, the
metrics at /metrics. Needs `pip install 'fastattn[serve]'`.
A keys file has a key a line, perhaps a blank and the characters that it may
have translated a minute.
Every request is a line of JSON on stderr, without its texts.
""",
)
@click.option(
    "-m",
    "--model",
    "models",
    multiple=True,
    required=True,
    metavar="NAME[=PATH]",
    help="A model by its name, or one of a path by the name that clients call it; a translator's may be its languages, "
    "such as de-en. May be given several times.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=5000, show_default=True, help="The port.")
@click.option("--lazy", is_flag=True, help="Load a model when it is first asked for (default: at the start).")
@click.option(
    "--idle",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="MINUTES",
    help="Put a model away that was not used for so long (default: never).",
)
@click.option(
    "--processes", type=click.IntRange(min=1), default=1, show_default=True, help="Worker processes behind the port."
)
@threads_option
@precision_option("float32", "bfloat16", "int8", "int4", "auto")
@click.option("--keys", metavar="FILE", help="Answer only those who have an API key of this file.")
@click.option(
    "--max-characters",
    type=click.IntRange(min=1),
    default=50_000,
    show_default=True,
    help="The most characters of all texts of a request.",
)
@click.option(
    "--max-items", type=click.IntRange(min=1), default=1000, show_default=True, help="The most texts of a request."
)
@click.option(
    "--max-requests",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="The most requests in progress; more get 429.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="The longest that a request may take.",
)
@click.option(
    "--cors", multiple=True, metavar="ORIGIN", help="Let pages of this origin ask; '*': of any (default: of none)."
)
@click.option("--log-texts", is_flag=True, help="Log what requests say, too.")
def serve(models: tuple[str, ...], host: str, port: int, idle: float, **options: Any) -> None:
    """Serve models over HTTP, in the dialects that clients of other servers speak."""
    try:
        from fastattn.serve.server import run_server
    except ImportError as error:
        raise FastattnError(f"serve needs {error.name}: pip install 'fastattn[serve]'") from None
    from fastattn.serve.settings import ServerSettings

    named = tuple(map(_named, models))
    if len(dict(named)) < len(named):
        raise InputError("two models have one name: give them others, NAME=PATH")
    renamed = {"max_characters": "characters", "max_items": "items", "max_requests": "requests", "cors": "origins"}
    given = {renamed.get(name, name): value for name, value in options.items() if value is not None}
    leave_signals()
    run_server(ServerSettings(named, idle=60 * idle, **given), host, port)


def _named(model: str) -> tuple[str, str]:
    """(name, path) of NAME, PATH or NAME=PATH."""
    name, given, path = model.partition("=")
    if given and name and path and "/" not in name:
        return name, path
    return PurePath(model).stem or model, model
