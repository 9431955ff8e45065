#!/bin/sh
# What `make demo` runs: English to Portuguese first, then Chinese to English and sentence vectors; -v prints speeds.
set -eu
cd "$(dirname "$0")"
PATH="$(cd .. && cd "${BIN:-.venv/bin}" && pwd):$PATH"

echo "== 1/6 downloading a small model, English to Portuguese (once)"
fastattn pull en-pt

echo
echo "== 2/6 compiling the kernels that it needs for this CPU (once), then translating"
sentence="The children cannot go to school because of the rain."
echo "$sentence"
fastattn translate "$sentence"

echo
echo "== 3/6 translating an English paragraph"
cat english.txt
echo
fastattn translate -v -i english.txt

echo
echo "== 4/6 downloading two more small models and compiling all other kernels (once)"
fastattn pull zh-en minilm
fastattn warmup

echo
echo "== 5/6 translating a Chinese paragraph"
cat chinese.txt
echo
fastattn translate --from zh --to en --beam-size 4 -v -i chinese.txt

echo
echo "== 6/6 encoding sentences and comparing them"
python similarity.py
