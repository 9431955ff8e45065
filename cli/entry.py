"""The group of all commands, which turns each error into a line on stderr and an exit code.

Neither this file nor the top of a command's file imports NumPy or Numba, so that ``fastattn --help`` answers at once.
"""

import contextlib
import os
import re
import sys
import warnings
from importlib import import_module
from typing import Any

import click

from fastattn._version import VERSION
from fastattn.cli.options import Group
from fastattn.cli.printing import say
from fastattn.errors import FastattnError
from fastattn.system.option_names import GENERATION, MODEL, SEARCH, TEXTS

# Each command is in a file of its name, which is imported when the command runs: all files together take 15 ms.
COMMANDS = (
    *"translate encode generate caption batch search rerank classify serve".split(),
    *"pull languages inspect verify convert warmup cache".split(),
)

INTERRUPTED = 130
CLOSED_PIPE = 141  # as a shell reports a program ended by SIGPIPE


class Commands(Group):
    """A group of commands whose failures print one line each: ``fastattn: what is wrong``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return getattr(import_module(f"fastattn.cli.{cmd_name}"), cmd_name)  # type: ignore[no-any-return]

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; where the reader of its output closed the pipe (``| head``), exit without an error message."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            ctx.exit(CLOSED_PIPE)

    def main(self, args: Any = None, prog_name: str | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """Run a command, then exit the process, with one of the codes that the command's help lists."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("once", UserWarning, append=True)
                # One line, without the file and the line of code, which Python would print too.
                warnings.showwarning = lambda text, *_, **options: say(f"fastattn: {_one_line(str(text))}", err=True)
                code = super().main(args, prog_name, standalone_mode=False)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  an unexpected one is printed with its traceback
            message, code = _explain(error)
            if message is None or os.environ.get("FASTATTN_DEBUG"):
                import traceback  # a slow import that is rarely needed

                for line in "".join(traceback.format_exception(error)).rstrip("\n").split("\n"):
                    say(line, err=True)
            if message:
                say(f"fastattn: {message}", err=True)
        # Buffered output that cannot be written (closed pipe, full disk) must not fail again when Python exits.
        with contextlib.suppress(ValueError, AttributeError):  # stdout is missing or closed
            try:
                sys.stdout.flush()
            except OSError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(code if isinstance(code, int) else 0)


def _explain(error: BaseException) -> tuple[str | None, int]:
    """(line to print, exit code) for an error; line "" if there is nothing to say, None for a bug of fastattn."""
    if isinstance(error, FastattnError):
        return str(error), error.exit_code
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "fastattn"
        message = (isinstance(error, click.NoSuchOption) and _own_name(error)) or _one_line(error.format_message())
        return f"{message} (see {command} --help)", error.exit_code
    if isinstance(error, click.ClickException):
        return _one_line(error.format_message()), error.exit_code
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return "", INTERRUPTED
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        return f"{error.filename}: {reason}" if error.filename else reason, 1
    if isinstance(error, MemoryError) or _lacks_memory(error):
        return "not enough memory" + (f": {_one_line(str(error))[:200]}" if str(error) else ""), 1
    return None, 1


def _own_name(error: click.NoSuchOption) -> str:
    """The message for an option that another program has under this name; "" for an unknown option."""
    call_names = GENERATION if error.ctx is not None and error.ctx.info_name == "generate" else SEARCH | TEXTS
    replacement = (MODEL | call_names).get(error.option_name.lstrip("-").replace("-", "_"), "")
    options = {} if error.ctx is None else {option.name: option.opts[-1] for option in error.ctx.command.params}
    own_name = re.sub(r"^\w+", lambda match: options.get(match[0], match[0]), replacement)
    return f"no option {error.option_name}; here it is {own_name}" if replacement else ""


def _lacks_memory(error: BaseException) -> bool:
    """Whether memory or address space ran out, though the error names another cause."""
    text = str(error)
    if isinstance(error, RuntimeError) and "can't start new thread" in text:
        return True
    if isinstance(error, ModuleNotFoundError) or not isinstance(error, (ImportError, SystemError)):
        return False
    if "failed to map segment" in text or "annot allocate memory" in text:
        return True
    try:
        import resource
    except ImportError:  # Windows
        return False
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def _one_line(message: str) -> str:
    return re.sub(r"[ \t\r\n]+", " ", message).strip()


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  fastattn translate "Hello world"
  fastattn translate -m zh-en "你好"
  fastattn generate -m ./my-llm "Once upon a time"
  fastattn encode -m minilm -i sentences.txt -o vectors.npy
  fastattn rerank -m ./my-reranker "Who eats?" -i documents.txt -k 10
  fastattn classify -m ./my-classifier "What a day!"
  fastattn search "Who eats?" -i vectors.npy --texts sentences.txt
  fastattn inspect zh-en

\b
Completion by the tab key, in bash (zsh_source in zsh, fish_source in fish):
  eval "$(_FASTATTN_COMPLETE=bash_source fastattn)"

\b
Exit codes:
  0    done
  1    anything that has no code of its own
  2    wrong usage or input
  3    a checkpoint that is missing, damaged or not supported
  4    a download that failed
  5    lines that failed: over --timeout, or left out by --on-error
  130  interrupted
  141  whoever read the output went away, as `| head` does
""",
)
@click.version_option(VERSION, prog_name="fastattn", message="%(prog)s %(version)s")
@click.pass_context
def commands(context: click.Context) -> None:
    """Attention models on the CPU: translate text, continue it, turn sentences into vectors.

    A MODEL is a name that `fastattn pull` lists, a folder that holds a checkpoint, or OWNER/NAME of the Hugging Face
    hub.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def run() -> None:
    """Run the command that the process's arguments name, with output in UTF-8 whatever the locale."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    commands.main(prog_name="fastattn")
