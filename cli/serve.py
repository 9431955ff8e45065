"""``fastattn serve``: an HTTP server for clients of LibreTranslate, DeepL, MTranServer, OpenAI and others."""

from pathlib import PurePath
from typing import Any

import click

from fastattn.cli.interrupt import restore_signals
from fastattn.cli.options import Command, declare
from fastattn.errors import FastattnError, InputError


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  fastattn serve -m en-pt -m pt-en
  fastattn serve -m zh-en -m minilm --port 8080 --processes 4
  fastattn serve -m de-en=./my-model -m chat=./my-llm.gguf --lazy --idle 30
  fastattn serve -m en-pt --host 0.0.0.0 --keys keys.txt
  fastattn serve -m en-pt -m minilm --mcp
  curl -d q="Good morning." -d source=en -d target=pt localhost:5000/translate

\b
A page to try it is at http://localhost:5000/, the routes are at /docs, the
metrics at /metrics. Needs `pip install 'fastattn[serve]'`.
A keys file has a key a line, perhaps a blank and the characters that it may
have translated a minute.
Every request is a line of JSON on stderr, without its texts.
""",
)
@declare(
    """
-m, --model NAME[=PATH] ... -> models: A model by its name, or one of a path by the name that clients call it; a
    translator's may be its languages, such as de-en. May be given several times. [required]
--host TEXT: The address to listen at. [default: 127.0.0.1]
--port PORT: The port. [default: 5000]
--lazy: Load a model when it is first asked for (default: at the start).
--idle MINUTES: Put a model away that was not used for so long (default: never).
--processes INTEGER>=1: Worker processes behind the port. [default: 1]
--threads
--precision [float32|bfloat16|int8|int4|auto]
--keys FILE: Answer only those who have an API key of this file.
--max-characters INTEGER>=1 -> characters: The most characters of all texts of a request. [default: 50000]
--max-items INTEGER>=1 -> items: The most texts of a request. [default: 1000]
--max-requests INTEGER>=1 -> requests: The most requests in progress; more get 429. [default: 256]
--timeout SECONDS: The longest that a request may take. [default: 120.0]
--proxy ADDRESS ... -> proxies: Take a client's address from the X-Forwarded-For of this proxy (default: of none).
--cors ORIGIN ... -> origins: Let pages of this origin ask; '*': of any (default: of none).
--log-texts: Log what requests say, too.
--mcp: Answer the Model Context Protocol on standard input and output, and no HTTP; over HTTP it is at /mcp.
--strict: Refuse requests with unknown fields (default: ignore these, and log each name once).
""",
    port={"type": click.IntRange(0, 65535), "metavar": None},
    idle={"type": click.FloatRange(min=0), "default": 0.0},
    timeout={"type": click.FloatRange(min=0, min_open=True)},
)
def serve(models: tuple[str, ...], host: str, port: int, idle: float, mcp: bool, **options: Any) -> None:
    """Serve models over HTTP, in the dialects that clients of other servers speak."""
    try:
        from fastattn.serve.server import run_server
    except ImportError as error:
        raise FastattnError(f"serve needs {error.name}: pip install 'fastattn[serve]'") from None
    from fastattn.serve.settings import ServerSettings

    served_models = tuple(map(_name_and_path, models))
    if len(dict(served_models)) < len(served_models):
        raise InputError("two models have one name: give them others, NAME=PATH")
    settings = {name: value for name, value in options.items() if value is not None}
    _check_proxies(settings.get("proxies", ()))
    server_settings = ServerSettings(served_models, idle=60 * idle, **settings)
    if mcp:  # a signal ends the process at once: no request of another client is in progress
        over_http = server_settings.keys, server_settings.origins, server_settings.proxies
        if any(over_http) or server_settings.processes > 1:
            raise click.UsageError("--keys, --cors, --proxy and --processes are for HTTP: leave them out with --mcp")
        from fastattn.serve.dialects.mcp import run_stdio

        run_stdio(server_settings)
        return
    restore_signals()
    run_server(server_settings, host, port)


def _check_proxies(proxies: tuple[str, ...]) -> None:
    """InputError for a proxy whose address no connection has."""
    from ipaddress import ip_network

    for proxy in () if proxies == ("*",) else proxies:
        try:
            ip_network(proxy)
        except ValueError:
            expected = "an address, a network such as 10.0.0.0/8, or '*' alone"
            raise InputError(f"--proxy should be {expected}, is {proxy!r}") from None


def _name_and_path(model: str) -> tuple[str, str]:
    """(name, path) of NAME, PATH or NAME=PATH."""
    name, separator, path = model.partition("=")
    if separator and name and path and "/" not in name:
        return name, path
    return PurePath(model).stem or model, model
