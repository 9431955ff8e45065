"""Another engine behind the plainest HTTP server there is for it: what a team would write in an afternoon.

    python -m bench.plain_server fxtranslate FOLDER --port 5001
    python -m bench.plain_server sentence-transformers FOLDER --port 5001

fxtranslate has a thread for each processor, with an engine each, since one serves one thread; sentence-transformers is
called by FastAPI's threads, and torch has its own beneath them.

It answers POST / with {"texts": [...]} -> {"answers": [...]}.
"""

import argparse
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from bench.machine import processors


class Body(BaseModel):
    texts: list[str]


def fxtranslate(folder: Path) -> Callable[[list[str]], list[str]]:
    from bench.translate_locally import FxTranslate

    own, pool = threading.local(), ThreadPoolExecutor(processors())

    def work(texts: list[str]) -> list[str]:
        if not hasattr(own, "engine"):
            own.engine = FxTranslate(folder)
        return [own.engine.translate(text) for text in texts]

    return lambda texts: pool.submit(work, texts).result()


def sentence_transformers(folder: Path) -> Callable[[list[str]], list[list[float]]]:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    return lambda texts: model.encode(texts).tolist()


ENGINES: dict[str, Callable[[Path], Callable[[list[str]], list[Any]]]] = {
    "fxtranslate": fxtranslate,
    "sentence-transformers": sentence_transformers,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=sorted(ENGINES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    engine, app = ENGINES[options.engine](options.folder), FastAPI()

    @app.get("/health")
    def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/")
    def answer(body: Body) -> dict[str, list[Any]]:
        return {"answers": engine(body.texts)}

    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
