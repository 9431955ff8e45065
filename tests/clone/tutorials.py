"""The tutorials of docs/tutorials, run as a reader runs them, and their outputs beside those that they show."""

import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.clone.test_docs import FENCE, statements


def run_tutorial(name: str, folder: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the blocks in a copy of examples/; a server listens at ``port``, and ends with the tutorial."""
    shutil.copytree(ROOT / "examples", folder, dirs_exist_ok=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    blocks = FENCE.findall((ROOT / "docs" / "tutorials" / f"{name}.md").read_text(encoding="utf-8"))
    assert sum(kind == "text" for kind, _ in blocks) >= 2
    names: dict[str, Any] = {}
    shells: list[subprocess.Popen[bytes]] = []
    output = ""
    try:
        for number, (kind, text) in enumerate(blocks):
            text = text.replace(":5000", f":{port}").replace("fastattn serve", f"fastattn serve --port {port}")
            if kind == "text":
                assert output == text.rstrip("\n"), f"{name}, block {number}"
            elif kind == "sh":
                output = _shell_output(re.sub(r"^pip install.*\n", "", text, flags=re.MULTILINE), shells)
            else:
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    list(statements(text, f"{name}.md block {number}", names))
                output = printed.getvalue().rstrip("\n")
    finally:
        for shell in shells:
            with contextlib.suppress(ProcessLookupError):  # it left nothing running
                os.killpg(shell.pid, signal.SIGTERM)


def _shell_output(commands: str, shells: list[subprocess.Popen[bytes]]) -> str:
    """What the commands print; what they leave running goes on in the session of the shell."""
    with Path("stdout").open("wb") as stdout, Path("stderr").open("wb") as stderr:
        shell = subprocess.Popen(["bash", "-ec", commands], stdout=stdout, stderr=stderr, start_new_session=True)
        shells.append(shell)
        code = shell.wait(120)
    assert code == 0, Path("stderr").read_text(encoding="utf-8")
    return Path("stdout").read_text(encoding="utf-8").rstrip("\n")
