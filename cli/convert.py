"""``fastattn convert``: writes any checkpoint to a folder for fastattn or another program, at a given precision."""

import shutil

import click

from fastattn.cli.options import declare, find_model
from fastattn.cli.printing import Compilation, Progress, say
from fastattn.system.files import open_folder

# Program that reads the folder OUT -> the package in weights/ that writes such a folder.
WRITERS = {"fastattn": "native", "huggingface": "huggingface", "ctranslate2": "ctranslate2"}


@click.command(
    epilog="""\b
Examples:
  fastattn convert minilm ./minilm-int8 --precision int8
  fastattn convert ./my-model.argosmodel ./my-model --precision bfloat16
  fastattn convert zh-en ./zh-en-marian --to huggingface --precision float32
  fastattn translate -m ./my-model "你好"

\b
The precision applies to matrices: linear weights and embedding tables;
everything else is float32.
  float32   nothing is lost; int8 matrices are dequantized
  bfloat16  rounded to the nearest, half the size
  int8      each row as multiples of its greatest weight / 127, a quarter of
            the size; matrices that are int8 already keep their values; an
            encoder's large columns are balanced (SmoothQuant), by a run on
            random tokens
  int4      linear layers in groups of 32 inputs, 5 bits a weight; embedding
            tables and the projection onto a vocabulary as int8

\b
OUT appears complete or not at all; it must not exist, or be empty. Any
command takes it as a MODEL. Other programs read what --to makes for them:
  fastattn     any model; its model.safetensors can be read elsewhere
  huggingface  what transformers loads: translators like Marian's, M2M100's
               or BART's, encoders and language models; float32 or bfloat16
  ctranslate2  what CTranslate2 loads: translators; float32 or int8
A model that the other format cannot say is refused.
"""
)
@click.argument("model")
@click.argument("out")
@declare(f"""
-p, --precision [float32|bfloat16|int8|int4]: Precision of the matrices in OUT. [required]
--to [{"|".join(WRITERS)}]: The program whose folder OUT is. [default: fastattn]
""")
def convert(model: str, out: str, precision: str, to: str) -> None:
    """Write MODEL to the folder OUT, as float32, bfloat16, int8 or int4."""
    with open_folder(out) as folder, Progress() as progress:
        progress.show(f"loading {model}")
        location = find_model(model, progress)
        from importlib import import_module
        from pathlib import Path

        from fastattn.weights import download, read
        from fastattn.weights.download.pull import SOURCE_FILE
        from fastattn.weights.native.convert import weight_bytes

        def on_progress(done: int, total: int) -> None:
            progress.show(f"writing {out}: {done / 1e6:,.1f} of {total / 1e6:,.1f} MB")

        path = download.resolve(location)
        checkpoint, factors = read(path, later=True), {}
        if precision == "int8" and to == "fastattn":
            Compilation(progress)
            from fastattn.loading.balance import input_factors
            from fastattn.ops import cpu as operations

            factors = input_factors(checkpoint, operations)
        write = import_module(f"fastattn.weights.{WRITERS[to]}.convert").write
        write(Path(folder), checkpoint, precision, on_progress, factors)
        if (path / SOURCE_FILE).is_file():
            shutil.copyfile(path / SOURCE_FILE, Path(folder) / SOURCE_FILE)  # licence and origin
    old_mb, new_mb = (weight_bytes(checkpoint, kind) / 1e6 for kind in (checkpoint.precision, precision))
    sizes = f"{old_mb:,.1f} MB of {checkpoint.precision} weights; {out}: {new_mb:,.1f} MB of {precision}"
    say(f"{model}: {sizes}", err=True)
