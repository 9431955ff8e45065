#!/bin/sh
# What `make demo` runs: two small models, a Chinese paragraph, a few sentences; speeds are printed by -v.
set -eu
cd "$(dirname "$0")"
PATH="$(cd .. && cd "${BIN:-.venv/bin}" && pwd):$PATH"

echo "== 1/4 downloading two small models (once)"
fastattn pull zh-en minilm

echo
echo "== 2/4 compiling the kernels for this CPU (once)"
fastattn warmup

echo
echo "== 3/4 translating a Chinese paragraph"
cat paragraph.txt
echo
fastattn translate -m zh-en --beam-size 4 -v -i paragraph.txt

echo
echo "== 4/4 encoding sentences and comparing them"
python similarity.py
