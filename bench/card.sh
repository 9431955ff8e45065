#!/bin/sh
# What a machine with an NVIDIA card runs first, in ten minutes and without a network: sh bench/card.sh MODELS [LOG]
#
# MODELS is a cache with minilm, zh-en and smollm2, as `FASTATTN_CACHE=MODELS fastattn pull minilm` makes it
# elsewhere. Python 3.12 with numba, numba-cuda, tokenizers, sentencepiece, huggingface_hub and click runs the equality
# parts; torch, transformers and sentence-transformers are beside the speeds where they are. What fails is told, and the
# next part begins. All lines go to LOG (card.log) too, as they come.
set -u
cd "$(dirname "$0")/.."
models=${1:?usage: sh bench/card.sh MODELS [LOG]}
log=${2:-card.log}
python=${PYTHON:-python3}
export FASTATTN_CACHE="$models" HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1

part() {
    echo "== $*"
    begun=$(date +%s)
    timeout "${LIMIT:-240}" "$@" 2>&1 || echo "FAILED ($?): $*"
    echo "== $(($(date +%s) - begun)) s"
}

{
    part nvidia-smi
    part "$python" -c 'import sys, importlib.metadata as m
print(sys.version)
for n in "numba numba-cuda numpy torch transformers tokenizers sentence-transformers".split():
    print(n, next((d.version for d in m.distributions() if d.metadata["Name"].lower() == n), "not there"))'
    for name in operations functions arrays models attention kernels speed; do
        part "$python" -m bench.gpu --part "$name" ${ONLY:+--only "$ONLY"} --rounds "${ROUNDS:-5}"
    done
} | tee "$log"
