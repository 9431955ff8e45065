"""Builds the wheel of fastattn-kernels: all kernels, compiled for the kinds of CPU that x86-64 servers have.

    python tests/clone/run_kernels.py dist          each kind takes as long as `fastattn warmup` with an empty cache

Beside the fastattn of the same sources, its code runs in place of code that is compiled on the spot. `fastattn warmup`
runs each kernel, so this machine needs the features of a kind: one that lacks some skips the kind, and says so.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fastattn._version import VERSION
from fastattn.runtime.code_cache import PACKAGE, settings
from fastattn.simd.target import compiled_features

AVX2 = (
    "64bit cmov crc32 cx8 cx16 fxsr sahf sse sse2 sse3 ssse3 sse4.1 sse4.2 popcnt xsave "
    "avx avx2 bmi bmi2 f16c fma lzcnt movbe"
)
AVX512 = f"{AVX2} avx512f avx512bw avx512cd avx512dq avx512vl"
VNNI = f"{AVX512} avx512vnni"
# By kind: LLVM's name of its least CPU, whose instructions all CPUs of the kind have, and features that fastattn uses.
KINDS = {
    "AVX2": ("haswell", AVX2),
    "AVX2, VNNI": ("haswell", f"{AVX2} avxvnni"),
    "AVX-512": ("skylake-avx512", AVX512),
    "AVX-512, VNNI": ("cascadelake", VNNI),
    "Zen 4 and 5": (
        "znver4",
        f"{VNNI} avx512bf16 avx512bitalg avx512ifma avx512vbmi avx512vbmi2 avx512vpopcntdq gfni vaes vpclmulqdq",
    ),
    "AMX": ("cascadelake", f"{VNNI} amx-tile amx-int8 amx-bf16"),
}
PLACES = """
from fastattn.runtime.code_cache import code_digest, target_digest
from fastattn.system.cache_folder import cache_root
print(cache_root() / "kernels" / code_digest())
print(target_digest())
"""
SETUP = f"""
from setuptools import setup
setup(name="fastattn-kernels", version={VERSION!r}, description="Compiled kernels of fastattn for x86-64 CPUs on Linux",
      license="Apache-2.0", install_requires=["fastattn=={VERSION}"], packages=[{PACKAGE!r}],
      package_data={{{PACKAGE!r}: ["*/*"]}})
"""


def main(out: str) -> int:
    if settings():
        sys.exit(f"expected none of Numba's variables, got {', '.join(settings())}")
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, PACKAGE)
        package.mkdir()
        (package / "__init__.py").write_text('"""Compiled kernels of fastattn."""\n')
        for kind, (cpu, features) in KINDS.items():
            missing = set(features.split()) - compiled_features()
            if missing:
                print(f"{kind}: not built, since this CPU lacks {' '.join(sorted(missing))}")
            else:
                files = build(cpu, features, package, Path(folder, kind))
                print(f"{kind}: {len(files)} kernels, {sum(file.stat().st_size for file in files) / 1e6:.1f} MB")
        command = [sys.executable, "-c", SETUP, "-q", "bdist_wheel", "--plat-name", "manylinux2014_x86_64"]
        subprocess.run([*command, "--dist-dir", os.path.abspath(out)], cwd=folder, check=True)
    return 0


def build(cpu: str, features: str, package: Path, cache: Path) -> list[Path]:
    """Compile all kernels for a CPU with these features; returns their files in the package."""
    variables = {
        "FASTATTN_CACHE": str(cache),
        "NUMBA_CPU_NAME": cpu,
        "NUMBA_CPU_FEATURES": ",".join(f"+{name}" for name in features.split()),
    }

    def run(*arguments: str) -> str:
        command, environment = [sys.executable, *arguments], {**os.environ, **variables}
        return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout

    run("-m", "fastattn.cli", "warmup")
    source, digest = run("-c", PLACES).splitlines()
    target = package / digest
    target.mkdir()
    (target / "features").write_text(features, "ascii")
    return [Path(shutil.copy(file, target)) for file in sorted(Path(source).glob("*-*[0-9a-f]"))]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
