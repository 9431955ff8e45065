"""Which room of the package may import which: the tables that tests/test_imports.py holds every import against."""

from tests import ROOT

ROOMS = {"fastattn": ROOT / "fastattn", "fastattn.weights": ROOT / "weights", "fastattn.cli": ROOT / "cli"}

# Room -> the rooms that it may import, beside itself and ANYBODY's, which import each other alone. What stands above
# may not be imported by what stands below: there are no circles. Model code takes its operations as an argument.
ANYBODY = {"errors", "printable", "system", "_version", "arguments"}
TABLE = {
    "errors": set(),
    "printable": set(),
    "_version": set(),
    "arguments": set(),
    "system": set(),
    "simd": set(),
    "spec": set(),
    "runtime": {"simd"},
    "ops": {"spec"},
    # spec for the activations' names
    "kernels": {"simd", "spec", "runtime"},
    "user_functions": {"simd", "runtime"},
    "ops.cpu": {"simd", "spec", "runtime", "ops", "kernels", "user_functions"},
    "ops.reference": {"spec", "ops"},
    "ops.cuda": {"spec", "ops", "ops.reference", "ops.cpu"},
    "layers": {"spec", "ops"},
    "models": {"spec", "ops", "layers"},
    "scheduling": set(),
    "processes": {"scheduling"},
    "text": {"spec"},
    "weights": {"spec", "text"},
    "loading": {"spec", "ops", "layers", "models", "processes", "weights"},
    "decoding": {"spec", "ops", "layers", "models", "scheduling"},
    "vectors": {"ops"},
    "array_attention": {"spec", "ops", "weights"},
    "plot": set(),
    "vision": {"spec", "ops", "layers", "models", "loading", "decoding", "array_attention", "plot"},
    "encoders": {"spec", "ops", "models", "scheduling", "text", "weights", "loading", "processes", "vectors", "vision"},
    "translation": {"plot", "spec", "ops", "scheduling", "text", "weights", "loading", "decoding", "processes"},
    "documents": {"plot", "text", "translation"},
    "generation": {"spec", "scheduling", "text", "weights", "loading", "decoding"},
    "mechanisms": {"ops", "layers", "array_attention"},
    "verification": {"spec", "ops", "models", "text", "loading", "encoders", "translation"},
    "distributed": {"ops", "weights", "processes", "encoders", "translation"},
    "serve": {"spec", "text", "weights", "vectors", "encoders", "translation", "generation", "documents"},
    "": {
        "runtime",
        "user_functions",
        "decoding",
        "vectors",
        "encoders",
        "translation",
        "documents",
        "generation",
        "array_attention",
        "mechanisms",
        "plot",
        "vision",
    },
    "cli": {
        "simd",
        "spec",
        "runtime",
        "ops",
        "ops.cpu",
        "ops.cuda",
        "text",
        "weights",
        "loading",
        "vectors",
        "encoders",
        "translation",
        "documents",
        "generation",
        "verification",
        "distributed",
        "vision",
        "plot",
        "serve",
    },
    "__main__": {"cli"},
}
# Within weights: room -> the rooms there that it may import, beside itself. An exporter knows no other.
READING = {"folder", "containers", "residual_state", "tensor_mapping"}
EXPORTERS = {"ctranslate2", "gguf", "huggingface", "marian", "native", "recurrent", "trainers"}
WEIGHTS = {
    "": {"folder", "containers"} | EXPORTERS,
    "folder": set(),
    "containers": {"folder"},
    "residual_state": {"tensor_mapping"},
    "tensor_mapping": set(),
    "ctranslate2": READING,
    "gguf": READING | {"huggingface"},  # whose architectures these are, by other names
    "huggingface": READING,
    "marian": READING,
    "native": READING,
    "recurrent": READING,
    "trainers": READING | {"huggingface", "recurrent"},  # the names of BART's tensors, OpenNMT-py's recurrent models
    "download": {"", "folder", "containers", "marian"},  # of the hub's many files those that the exporters read
}
# Room -> the packages from outside that it may import; NumPy and the standard library are everybody's.
OUTSIDE = {
    "array_attention": {"typing_extensions"},  # for type checkers alone, which bring it
    "system": {"typing_extensions"},
    "simd": {"numba", "llvmlite"},
    "runtime": {"numba", "llvmlite"},
    "user_functions": {"numba", "llvmlite"},
    "kernels": {"numba", "llvmlite"},
    "ops.cuda": {"numba", "numba_cuda", "cuda", "llvmlite"},  # where it is installed
    "vision": {"PIL"},  # for a caller who has pictures
    "vectors": {"scipy"},  # for a caller who asks for it
    "documents": {"lxml", "markdown_it", "polib", "pypdfium2", "yaml"},
    "text": {"py3langid", "tokenizers", "sentencepiece", "jinja2", "llguidance", "sacremoses"},
    "weights": {"huggingface_hub", "tomli"},
    "cli": {"click", "numba", "llvmlite"},
    "distributed": {"pyarrow", "ray"},
    "serve": {
        "fastapi",
        "h11",
        "opentelemetry",
        "prometheus_client",
        "pydantic",
        "pydantic_core",
        "starlette",
        "uvicorn",
    },
    "verification": {"torch"},  # where it is installed, as all that frameworks.py imports
}


def room_of(module):
    """The room of a dotted name; "" for the package itself."""
    parts = module.split(".")[1:3]
    return ".".join(parts) if ".".join(parts) in TABLE else (parts or [""])[0]


def modules():
    """(dotted name, file) of every module of the package as it is installed."""
    for package, folder in ROOMS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            yield ".".join([package, *parts]), path
