"""Convolutions against PyTorch, ONNX Runtime and OpenVINO, and against the peak.

Rates are of the multiplications that the definition has: of a 3x3 convolution by patches, which does with 4 / 9 of
them, they may be above the peak.
"""

from functools import partial

from bench.case import OURS, Side, installed
from bench.checks import Data, Findings, check
from bench.checks.compare import THREADS, compare, plural
from bench.kernel_cases import case_of
from bench.measure import peak_flops
from bench.operations import OPERATIONS
from bench.operations.table import Problem
from bench.timing import library_threads
from fastattn.ops.cpu import use_threads

PEERS = ("PyTorch", "ONNX Runtime")


@check(
    "images-convolution",
    "one thread and two, float32: 3x3 of 64 channels of 56 x 56 and of 256 of 8 x 14 x 14, 1x1 of 256 of 8 x 28 x 28, "
    "depthwise 3x3 of 256 of 8 x 28 x 28 and, stride 2, of 128 of 8 x 56 x 56: ahead of PyTorch and of ONNX Runtime; "
    "7x7 of 3 channels of 224 x 224, stride 2: at least 80%",
)
def images_convolution(findings: Findings, data: Data) -> None:
    problems = [
        OPERATIONS[name].problem(size) for name in ("convolve", "convolve_depthwise") for size in OPERATIONS[name].large
    ]
    for threads in THREADS:
        peak = peak_flops(threads) / 1e9
        for problem in problems:
            _against_peers(problem, threads, peak, findings)


def _against_peers(problem: Problem, threads: int, peak: float, findings: Findings) -> None:
    with use_threads(threads), library_threads(threads):
        case = case_of(problem)
        del case.sides["NumPy"]
        if installed(("onnx", "openvino")):
            case.sides["OpenVINO"] = _openvino(problem, threads)
    sides = compare(case, threads, rounds=9, seconds=1.0)
    share = f"{case.work / sides[OURS]['seconds'] / peak:.0%} of the peak"
    wanted = 1.0 if problem.arrays["x"].shape[1] > 3 else 0.8
    for peer in PEERS:
        remark = f"{sides[OURS]['rate']}, {share}; theirs {sides[peer]['rate']} {sides[peer]['setting']}"
        findings.at_least(f"{plural(threads)}, {case.name}:", sides[peer]["ratio"], f"x {peer}", wanted, remark)
    if "OpenVINO" in sides:
        findings.say(f"{sides['OpenVINO']['ratio']:.2f} x OpenVINO")


def _openvino(problem: Problem, threads: int) -> Side:
    import openvino

    from bench.onnx_kernels import convolution, pixels
    from bench.openvino_session import runner

    arrays, window, groups = problem.arrays, problem.form["window"], problem.form.get("groups")
    if groups is None:
        arrays, groups = arrays | {"weight": arrays["weight"].T}, arrays["x"].shape[1]
    model, images_BCYX = convolution(arrays, problem.form["grid"], window, groups)
    run = runner(openvino.Core().read_model(model), threads, "float32")
    return Side({"": partial(run, images_BCYX, images_BCYX)}, view=pixels)
