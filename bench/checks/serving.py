"""The server against its own description."""

import re
import subprocess
import sys
from pathlib import Path

from bench.checks import Data, Findings, check, need
from bench.server import SERVE, running

EXAMPLES = 100  # of each operation
SECONDS = 20  # that the server may take for an answer; schemathesis waits longer
# A code that is no language fits the description; as LibreTranslate does, the server refuses it with 400.
LEFT_OUT = "positive_data_acceptance"


@check(
    "serve-schema",
    f"schemathesis over the OpenAPI description of a translator, an encoder and a language model, {EXAMPLES} examples "
    f"of each operation, all of its checks but {LEFT_OUT}: it finds nothing",
)
def schema(findings: Findings, data: Data) -> None:
    need("schemathesis", "fastapi")
    program = Path(sys.executable).with_name("schemathesis")
    with running([*SERVE, "-m", "en-pt", "-m", "minilm", "-m", "lm=smollm2", "--timeout", str(SECONDS)]) as server:
        ended = subprocess.run(
            [str(program), "run", f"{server.address}/openapi.json", "--max-examples", str(EXAMPLES), "--seed", "1",
             "-c", "all", "--exclude-checks", LEFT_OUT, "--request-timeout", str(2 * SECONDS)],
            capture_output=True,
            text=True,
        )  # fmt: skip
    counts = re.findall(r"(\d+) (failures?|errors?)\b", ended.stdout.splitlines()[-1])
    findings.at_most("failures and errors", sum(int(number) for number, _ in counts), "", 0)
    generated = re.search(r"(\d+) generated", ended.stdout)
    findings.at_least("requests", int(generated[1]) if generated else 0, "", 1000)
    if ended.returncode:
        findings.say(" / ".join(re.findall(r"- (ST\d+ .*)", ended.stdout)[:6]))
        errors = re.search(r"=+ ERRORS =+(.*?)\n=+ ", ended.stdout, re.DOTALL)
        findings.say(" ".join(errors[1].split())[:400] if errors else "")
