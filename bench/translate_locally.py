"""translateLocally, the Bergamot engine (C++, intgemm) as a program of its own: found, set up, and run as a command.

It wants its models in the user's folder of data and its settings in that of configuration; here both are folders of
the caller's, so that nothing of the user's takes part.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

VARIABLE = "FASTATTN_TRANSLATELOCALLY"
CONFIG = "config.intgemm8bitalpha.yml"  # the only name that it looks for


def program() -> str | None:
    """The program that FASTATTN_TRANSLATELOCALLY names, else what is found on PATH; None where there is none."""
    return shutil.which(os.environ.get(VARIABLE) or "translateLocally")


class TranslateLocally:
    """The program with these models, short name -> folder of a Firefox model, in an empty ``folder``.

    Raises FileNotFoundError for a model that it could not load.
    """

    name = "translateLocally"

    def __init__(self, program: str, folder: Path, models: dict[str, Path]):
        self._program, self._folder = program, folder
        for name, model in models.items():
            if not (model / CONFIG).is_file():
                raise FileNotFoundError(f"{self.name} wants a {CONFIG} in {model}")
            self._add(name, model)

    def _add(self, name: str, model: Path) -> None:
        """The model's files under a description that gives it this name."""
        home = self._folder / "data" / self.name / name
        home.mkdir(parents=True)
        for file in model.iterdir():
            if file.is_file():
                (home / file.name).symlink_to(file.absolute())
        description = home / "model_info.json"
        description.unlink(missing_ok=True)
        said = {"modelName": name, "shortName": name, "type": "tiny", "src": name, "trg": name, "version": 1, "API": 1}
        description.write_text(json.dumps(said), encoding="utf-8")

    def translate(self, name: str, source: Path, target: Path, threads: int) -> None:
        """The lines of ``source`` to ``target``, a process from its start to its end."""
        command = [self._program, "-m", name, "-i", str(source), "-o", str(target)]
        done = subprocess.run(command, env=self._environment(threads), capture_output=True, text=True, errors="replace")
        if done.returncode != 0 or not target.is_file():
            raise RuntimeError(f"{self.name}: {done.stderr.strip().rpartition(chr(10))[2] or done.returncode}")

    def _environment(self, threads: int) -> dict[str, str]:
        """Its cache of sentences is off: a text that repeats would measure the cache."""
        settings = self._folder / f"settings-{threads}" / self.name
        settings.mkdir(parents=True, exist_ok=True)
        said = f"[General]\ncpu_cores={threads}\ncache_translations=false\n"
        (settings / f"{self.name}.conf").write_text(said, encoding="utf-8")
        return {
            **os.environ,
            "XDG_DATA_HOME": str(self._folder / "data"),
            "XDG_CONFIG_HOME": str(settings.parent),
            "QT_QPA_PLATFORM": "offscreen",
        }
