"""translateLocally, a program for Firefox's models with the Bergamot engine (C++, intgemm)."""

import json
import os
import shutil
import subprocess
from pathlib import Path

VARIABLE = "FASTATTN_TRANSLATELOCALLY"
CONFIG = "config.intgemm8bitalpha.yml"  # the only name that the program accepts


def program() -> str | None:
    """The program that FASTATTN_TRANSLATELOCALLY names, else the one on PATH; None if there is none."""
    return shutil.which(os.environ.get(VARIABLE) or "translateLocally")


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


class TranslateLocally:
    """The program with ``models``, {short name: folder of a Firefox model}, in an empty ``folder``.

    The program reads models from the user's data folder and settings from the configuration folder; here both are below
    ``folder``, so that the user's own have no effect.

    Raises FileNotFoundError for a model that it cannot load.
    """

    name = "translateLocally"

    def __init__(self, program: str, folder: Path, models: dict[str, Path]):
        self._program, self._folder = program, folder
        for name, model in models.items():
            if not (model / CONFIG).is_file():
                raise FileNotFoundError(f"{self.name} wants a {CONFIG} in {model}")
            self._add(name, model)

    def _add(self, name: str, model: Path) -> None:
        home = self._folder / "data" / self.name / name
        home.mkdir(parents=True)
        for file in model.iterdir():
            if file.is_file():
                (home / file.name).symlink_to(file.absolute())
        description = home / "model_info.json"
        description.unlink(missing_ok=True)
        info = {"modelName": name, "shortName": name, "type": "tiny", "src": name, "trg": name, "version": 1, "API": 1}
        description.write_text(json.dumps(info), encoding="utf-8")

    def translate(self, name: str, source: Path, target: Path, threads: int) -> None:
        command, environment = self.command(name, source, target, threads)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")
        if done.returncode != 0 or not target.is_file():
            raise RuntimeError(f"{self.name}: {done.stderr.strip().rpartition(chr(10))[2] or done.returncode}")

    def command(self, name: str, source: Path, target: Path, threads: int) -> tuple[list[str], dict[str, str]]:
        """Arguments and environment; the program's cache of sentences is off: a repeated text would measure it."""
        settings = self._folder / f"settings-{threads}" / self.name
        settings.mkdir(parents=True, exist_ok=True)
        text = f"[General]\ncpu_cores={threads}\ncache_translations=false\n"
        (settings / f"{self.name}.conf").write_text(text, encoding="utf-8")
        folders = {"XDG_DATA_HOME": str(self._folder / "data"), "XDG_CONFIG_HOME": str(settings.parent)}
        environment = {**os.environ, **folders, "QT_QPA_PLATFORM": "offscreen"}
        return [self._program, "-m", name, "-i", str(source), "-o", str(target)], environment
