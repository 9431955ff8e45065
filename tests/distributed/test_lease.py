"""Leases, which keep other jobs out where there are no locks."""

import contextlib
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("pyarrow", reason="output in blocks needs the extra fastattn[ray]")

from fastattn.distributed import output_stores
from fastattn.distributed.output_folder import OutputFolder
from fastattn.errors import FastattnError, StorageError


@pytest.fixture
def without_locks(monkeypatch):
    monkeypatch.setattr(output_stores, "try_lock", lambda _: False)


def leases(out):
    return list((out / "_fastattn" / "leases").iterdir())


def age(path, seconds):
    status = path.stat()
    os.utime(path, (status.st_atime, status.st_mtime - seconds))


def test_where_there_are_no_locks_a_lease_keeps_others_out(out, without_locks):
    folder = OutputFolder(str(out), "parquet")
    with folder.hold() as check:
        (held,) = leases(out)
        told = rf"out: another job .* 120 seconds ago \(seen 0 seconds ago, process {os.getpid()} on "
        with pytest.raises(FastattnError, match=told), folder.hold():
            pass
        age(held, 119)
        with pytest.raises(FastattnError, match=r"seen 1[12]\d seconds ago"), folder.hold():
            pass
        held.write_bytes(b"[")
        with pytest.raises(FastattnError, match=r"\(seen 0 seconds ago\)"), folder.hold():
            pass
        assert leases(out) == [held]
        check()
    assert leases(out) == []


def test_a_lease_of_a_killed_job_dies(out, without_locks):
    folder = OutputFolder(str(out), "parquet")
    with folder.hold():
        (held,) = leases(out)
        age(held, 121)
        with folder.hold():
            assert len(leases(out)) == 1 and held not in leases(out)
            age(leases(out)[0], 60)
            held.touch()
            age(held, 1000)
            with pytest.raises(FastattnError, match="another job is at work there"), folder.hold():
                pass


def test_a_lease_is_renewed_and_its_loss_is_told(out, without_locks, monkeypatch):
    monkeypatch.setattr(output_stores, "RENEWED_AFTER", 0.01)
    with OutputFolder(str(out), "parquet").hold() as check:
        (held,) = leases(out)
        age(held, 1000)
        waiting(lambda: time.time() - held.stat().st_mtime < 500)
        check()
        held.unlink()
        waiting(lambda: not lives())
        with pytest.raises(StorageError, match="another job has begun there"):
            check()
    assert not lives()


def test_a_lease_that_was_taken_while_it_was_renewed_is_lost(out, without_locks, monkeypatch):
    monkeypatch.setattr(output_stores, "RENEWED_AFTER", 0.01)
    monkeypatch.setattr(output_stores, "DEAD_AFTER", 0.5)
    folder, renew = OutputFolder(str(out), "parquet"), output_stores._Lease.renew
    with contextlib.ExitStack() as stack, folder.hold() as check:
        (held,) = leases(out)

        def renew_late(self):
            monkeypatch.setattr(output_stores._Lease, "renew", renew)
            time.sleep(0.6)
            stack.enter_context(folder.hold())
            assert held not in leases(out)
            renew(self)

        monkeypatch.setattr(output_stores._Lease, "renew", renew_late)
        with pytest.raises(StorageError, match="another job has begun there"):
            waiting(lambda: check() is not None)


@pytest.mark.parametrize("is_alone, dead_after", [(True, 0.0), (False, 120.0)])
def test_a_lease_lives_however_late_it_is_renewed_or_beside_a_refused_one(
    is_alone, dead_after, out, without_locks, monkeypatch
):
    monkeypatch.setattr(output_stores, "RENEWED_AFTER", 0.01)
    monkeypatch.setattr(output_stores, "DEAD_AFTER", dead_after)
    with OutputFolder(str(out), "parquet").hold() as check:
        (held,) = leases(out)
        if not is_alone:
            (held.parent / "other.json").write_text("{}")
        for _ in range(2):
            first = held.stat().st_mtime_ns
            waiting(lambda: held.stat().st_mtime_ns > first)  # noqa: B023  called at once
        check()


def test_of_many_that_begin_at_once_no_two_hold_a_lease(out, without_locks):
    folder, barrier, holding, most, refused = OutputFolder(str(out), "parquet"), threading.Barrier(8), set(), [], []

    def begin(number):
        barrier.wait()
        try:
            with folder.hold():
                holding.add(number)
                time.sleep(0.01)
                most.append(len(holding))
                holding.remove(number)
        except FastattnError as error:
            refused.append(error)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(begin, range(8)))
    # All may be refused, each by another's lease; never do two hold one.
    assert len(most) + len(refused) == 8 and set(most) <= {1}
    assert leases(out) == []
    with folder.hold():  # one that begins alone does
        assert len(leases(out)) == 1


def lives():
    return any(thread.name == "fastattn lease" for thread in threading.enumerate())


def waiting(is_so):
    end = time.monotonic() + 100
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)
