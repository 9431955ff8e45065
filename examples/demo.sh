#!/bin/sh
# What `make demo` runs: two small models, a Chinese paragraph, a few sentences; speeds are printed by -v.
set -eu
cd "$(dirname "$0")"
PATH="$(cd .. && cd "${BIN:-.venv/bin}" && pwd):$PATH"

echo "== 1/3 downloading two small models (once)"
fastattn pull zh-en minilm

echo
echo "== 2/3 translating a Chinese paragraph"
cat paragraph.txt
echo
fastattn translate -m zh-en --beam-size 4 -v -i paragraph.txt

echo
echo "== 3/3 encoding sentences and comparing them"
python similarity.py
