"""Installs wheels and sdists in a fresh environment of every Python that setup.cfg names, and sees that they work.

    python tests/clone/run_installs.py dist/*       a line for each Python and file: PASS, FAIL, or not here, untested

An interpreter is looked for on PATH and among pyenv's; none is required. What pip needs comes from the index that it is
configured for. A file passes where the command line starts, a tiny model of each kind gives what NumPy computes, and,
where it can be fetched, Firefox's English to Portuguese translates. The exit status is 1 where one failed.
"""

import configparser
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = "Scripts" if os.name == "nt" else "bin"
DOWNLOAD_FAILED = 4  # fastattn's exit code


class Failure(Exception):
    """A step that did not do what it should."""


def main(files: list[Path]) -> int:
    if not files or not all(file.name.endswith((".whl", ".tar.gz")) and file.is_file() for file in files):
        print(f"expected wheels and sdists, got {' '.join(map(str, files)) or 'nothing'} (make dist)", file=sys.stderr)
        return 2
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for version in versions():
            python = interpreter(version)
            if python is None:
                say(f"{version:<8} not here, untested")
                continue
            for number, file in enumerate(files):
                place = Path(folder, f"{version}-{number}")
                place.mkdir()
                try:
                    remark = try_out(python, file.resolve(), place, Path(folder, "cache"))
                    say(f"{version:<8} PASS  {file.name}: {remark}")
                except Failure as failure:
                    failed = True
                    say(f"{version:<8} FAIL  {file.name}: {failure}")
                shutil.rmtree(place)
    return int(failed)


def say(text: str) -> None:
    print(text, flush=True)


def versions() -> list[str]:
    """The minor versions that the classifiers of setup.cfg name."""
    settings = configparser.ConfigParser()
    settings.read(HERE.parents[1] / "setup.cfg", encoding="utf-8")
    named = [line.rpartition(" :: ")[2] for line in settings["metadata"]["classifiers"].split("\n") if "Python" in line]
    return [version for version in named if "." in version]


def interpreter(version: str) -> str | None:
    """One that runs and can make environments: on PATH, else pyenv's newest, else what runs this."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    newest = sorted(pyenv.glob(f"{version}.*"), key=lambda path: path.name.rpartition(".")[2].zfill(4), reverse=True)
    for found in (shutil.which(f"python{version}"), *(path / "bin" / "python" for path in newest), sys.executable):
        code = "import ensurepip, venv, sys; print('%d.%d' % sys.version_info[:2])"
        if found and subprocess.run([found, "-c", code], capture_output=True, text=True).stdout.strip() == version:
            return str(found)
    return None


def try_out(python: str, file: Path, place: Path, cache: Path) -> str:
    """Install ``file`` in ``place`` and use it; Failure says what went wrong. Returns what was seen."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FASTATTN_"))}
    environment |= {"FASTATTN_CACHE": str(cache), "PYTHONUTF8": "1"}

    def run(*command: str, allowed: int = 0) -> str | None:
        """What it prints; None where it exits with the other code that is ``allowed``."""
        done = subprocess.run(command, cwd=place, env=environment, capture_output=True, encoding="utf-8")
        if done.returncode not in (0, allowed):
            last = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()[-1]
            print(done.stdout + done.stderr, file=sys.stderr)
            raise Failure(f"{' '.join(command)}: exit status {done.returncode}: {last}")
        return done.stdout if done.returncode == 0 else None

    run(python, "-m", "venv", "venv")
    programs = place / "venv" / PROGRAMS
    python, fastattn = str(programs / "python"), str(programs / "fastattn")
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(file))
    check("warnings of the import", run(python, "-W", "error", "-c", "import fastattn; from fastattn import *"), "")
    version = (run(fastattn, "--version") or "").strip()
    if version.removeprefix("fastattn ") not in file.name:
        raise Failure(f"fastattn --version: expected the version of {file.name}, got {version!r}")
    machine = run(fastattn, "inspect") or ""
    run(python, __file__, "--models", str(place))
    expected = json.loads((place / "expected.json").read_text(encoding="utf-8"))
    length, text = str(expected["length"]), expected["text"]
    line = run(fastattn, "translate", "-m", "translator", "--beam-size", "2", "--max-length", length, text)
    check("translation", line, expected["translation"] + "\n")
    vector = json.loads(run(fastattn, "encode", "-m", "encoder", text) or "")["embedding"]
    if max(abs(a - b) for a, b in zip(vector, expected["vector"], strict=True)) > 1e-5:
        raise Failure(f"encoding: expected {expected['vector']}, got {vector}")
    if run(fastattn, "pull", "en-pt", allowed=DOWNLOAD_FAILED) is None:
        real = "en-pt cannot be fetched here"
    else:
        check("en-pt", run(fastattn, "translate", "Hello world"), "Olá, mundo!\n")
        real = "en-pt translates"
    used = next((line.split(maxsplit=1)[1] for line in machine.splitlines() if line.startswith("versions")), "")
    return f"{real}; {used}"


def write_models(folder: Path) -> None:
    """Two tiny random models, and what the reference operations make of some text: with the fastattn of this Python."""
    sys.path.append(str(HERE.parents[1]))  # after what is installed
    from fastattn import Encoder, Translator
    from fastattn.ops import reference
    from fastattn.spec.text_spec import EncoderText
    from fastattn.weights.native import convert
    from tests.models.encoder_cases import CASES, make_checkpoint
    from tests.models.tiny_models import random_checkpoint, vocabulary

    said, length = "▁w1 ▁w2 ▁w3", 6
    translation = random_checkpoint()
    words = {word: number for number, word in enumerate(vocabulary(CASES[0].spec.vocabulary))}
    model = {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"}
    tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model}
    text = EncoderText(tokenizer=json.dumps(tokenizer).encode(), max_length=32)
    encoder = dataclasses.replace(make_checkpoint(CASES[0]), input=text)
    for name, checkpoint in (("translator", translation), ("encoder", encoder)):
        (folder / name).mkdir()
        convert.write(folder / name, checkpoint, "float32")
    translator = Translator.from_checkpoint(translation, ops=reference)
    line = translator.translate(said, beam_size=2, max_decoding_length=length)
    vector = Encoder.from_checkpoint(encoder, ops=reference).encode(said)
    expected = {"text": said, "length": length, "translation": line, "vector": vector.ravel().tolist()}
    (folder / "expected.json").write_text(json.dumps(expected), encoding="utf-8")


def check(what: str, found: str | None, expected: str) -> None:
    if found != expected:
        raise Failure(f"{what}: expected {expected!r}, got {found!r}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--models"]:
        write_models(Path(sys.argv[2]))
    else:
        sys.exit(main([Path(argument) for argument in sys.argv[1:]]))
