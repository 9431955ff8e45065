"""The parts of the benchmark and their child processes."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from bench.request import Request

ENGINES = {
    "encode": ("fastattn", "sentence-transformers", "CTranslate2", "ONNX Runtime", "OpenVINO"),
    "translate": ("fastattn", "CTranslate2"),
    "attention": ("fastattn", "NumPy", "PyTorch"),
}
IN_INT8 = {"encode": ("fastattn", "CTranslate2", "ONNX Runtime", "OpenVINO"), "translate": ENGINES["translate"]}
PRECISIONS = ("float32", "bfloat16", "int8")
MEMORY_LENGTHS = (1024, 2048, 4096, 8192)  # positions at which attention's memory is measured


@dataclass(frozen=True)
class Part:
    """requests: (base, counts) -> requests to run; base has the common fields, counts the numbers of threads."""

    name: str
    claim: str
    models: tuple[str, ...]  # fields of Request that must name a folder
    requests: Callable[[Request, list[int]], list[Request]]


def _each(base: Request, counts: list[int]) -> list[Request]:
    """Everything at one and two threads in each precision; with more threads, or in a quick run, only what the plot
    over threads shows."""
    precisions: tuple[str, ...] = (*PRECISIONS, "int4") if base.part == "kernels" else PRECISIONS
    if base.size == "quick" and base.part != "kernels":
        counts, precisions = counts[-1:], ("float32", "int8")
    most = 1 if base.size == "quick" else 2
    return [
        replace(base, threads=count, precision=precision, scaling=count > most and base.part == "kernels")
        for precision in precisions
        for count in counts
        if precision == "float32" or count <= most
    ]


def _extremes(base: Request, counts: list[int]) -> list[Request]:
    ends = sorted({counts[0], counts[-1]})[-1:] if base.size != "full" else sorted({counts[0], counts[-1]})
    return [replace(base, threads=count) for count in ends]


def _resources(base: Request, counts: list[int]) -> list[Request]:
    engines = {"attention": ENGINES["attention"]} if base.size == "toy" else ENGINES
    lengths = {"full": MEMORY_LENGTHS, "quick": MEMORY_LENGTHS[-1:], "toy": (64, 256)}[base.size]
    items = [
        (f"{task} {engine}" + more, "float32")
        for task, names in engines.items()
        for engine in names
        for more in ([f" {length}" for length in lengths] if task == "attention" else [""])
    ]
    if base.size != "toy":
        items += [(f"{task} {engine}", "int8") for task, names in IN_INT8.items() for engine in names]
    if base.size == "quick":
        items = [(item, precision) for item, precision in items if item.split()[1] == "fastattn"]
    return [replace(base, threads=1, item=item, precision=precision) for item, precision in items]


def _compiling(base: Request, counts: list[int]) -> list[Request]:
    """Compile time: a run with an empty cache of kernels, then one with the filled cache. Only in a full run."""
    if base.size != "full":
        return []
    items = ("encode fastattn", "translate fastattn", "warmup")
    return [replace(base, threads=counts[-1], item=item) for item in items]


MODELS = ("encoder", "translator")
PARTS = {
    part.name: part
    for part in (
        Part("kernels", "every kernel against NumPy, PyTorch and ONNX Runtime", (), _each),
        Part("lengths", "attention over the number of positions", (), _extremes),
        Part("encode", "MiniLM from text to vectors against five engines", ("encoder",), _each),
        Part("translate", "zh-en from text to text, greedy and beam 4, against two engines", ("translator",), _each),
        Part("resources", "imports, loading, first text, peak memory of each engine", MODELS, _resources),
        Part("compiling", "the time that compiling takes with an empty cache", MODELS, _compiling),
    )
}
