"""Streams beside answers whose steps fail: the search begins anew, and the text is not told twice."""

import threading

import pytest

from fastattn.decoding import worker
from fastattn.scheduling.scheduler import Scheduler
from tests.generation.language_models import make


@pytest.mark.parametrize("options", [{}, {"sampling_temperature": 1.0, "seed": 3}, {"stop": "nowhere"}])
def test_a_search_that_begins_anew_tells_nothing_twice(monkeypatch, options):
    generator = make(end_ids=())
    given = {"max_new_tokens": 60, **options}
    expected = {prompt: generator.generate(prompt, **given) for prompt in ("the end", "an apple")}
    real, submit, steps = worker.DecodingWorker._step, Scheduler.submit, []
    asked, both = [], threading.Event()

    def note(self, *arguments):
        request = submit(self, *arguments)
        asked.append(request)
        if len(asked) == 2:
            both.set()  # before that no step is made, or one search may be over before the other begins
        return request

    monkeypatch.setattr(Scheduler, "submit", note)

    def fail_once(self):
        assert both.wait(60)
        together = len(self.sentences()) > 1
        steps.append(together)
        if sum(steps) == 5 and together:
            raise RuntimeError("a step that fails")
        real(self)

    monkeypatch.setattr(worker.DecodingWorker, "_step", fail_once)
    found = {}

    def run(prompt):
        found[prompt] = "".join(generator.stream(prompt, **given))

    threads = [threading.Thread(target=run, args=(prompt,)) for prompt in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(steps) >= 5
    assert found == expected
