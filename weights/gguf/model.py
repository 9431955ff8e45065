"""One language model of one or more GGUF files -> a Checkpoint."""

from dataclasses import replace

from fastattn.errors import CheckpointError
from fastattn.printable import counted
from fastattn.spec.architecture import ModelSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.weights.containers.gguf import GGUF, read_gguf
from fastattn.weights.folder import Directory
from fastattn.weights.gguf.architecture import ROPE_FACTORS, as_stored, make_config, make_table
from fastattn.weights.gguf.tokenizer import read_text
from fastattn.weights.huggingface.decoders import find_decoder
from fastattn.weights.tensor_mapping import canonical_tensors, main_precision

MISFIT = "tensors do not fit the architecture in its metadata"


def read_model(folder: Directory, names: list[str]) -> Checkpoint:
    """The language model of these files, of which the first has the metadata."""
    file = _joined([read_gguf(folder, name) for name in names])
    where = file.metadata.where
    form, config = make_config(file)
    spec = as_stored(find_decoder(config).spec(config), form)
    stored = {name: tensor for name, tensor in file.tensors.items() if name != ROPE_FACTORS}
    # More layers than tensors are refused before their names fill memory.
    if spec.layers > len(stored):
        raise CheckpointError(
            f"{where}: there should be {counted(spec.layers, 'layer')}, it has {counted(len(stored), 'tensor')}"
        )
    text = read_text(file.metadata, spec.vocabulary, spec.positions.limit)
    model = ModelSpec("decoder", decoder=spec)
    return Checkpoint(
        spec=model,
        tensors=canonical_tensors(make_table(spec, stored), model, stored, where, MISFIT),
        input=text,
        precision=main_precision((tensor.precision, len(tensor.data)) for tensor in stored.values()),
        format="gguf",
        details={"architecture": file.metadata.string("general.architecture")},
        files=tuple(folder.used),
    )


def _joined(files: list[GGUF]) -> GGUF:
    """The files as one, each of which says its number."""
    first = files[0]
    tensors = dict(first.tensors)
    for i, file in enumerate(files):
        found = file.metadata.integer("split.no", 0), file.metadata.integer("split.count", 1) or 1
        if found != (i, len(files)):
            raise file.metadata.error("split.no and split.count", f"{i} and {len(files)}", found)
        if i and (twice := tensors.keys() & file.tensors.keys()):
            raise CheckpointError(f"{file.metadata.where}: {min(twice)} is in another part too")
        tensors |= file.tensors
    return replace(first, tensors=tensors)
