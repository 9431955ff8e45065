"""Who holds a folder where there are no locks: objects there, each renewed by its holder while it lives.

A job writes its own lease first and lists all leases then, and goes on only if it finds no other that lives. Of two
that begin at once, at least one so finds the other, in a store whose listings show what was written before them: both
may be refused, both cannot go on. How old a lease is, the store's clock says, by which both leases are dated.
"""

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fastattn.errors import FastattnError, StorageError
from fastattn.system.worker_threads import start_thread

if TYPE_CHECKING:
    from fastattn.distributed.output_stores import Store

RENEWED_AFTER = 30.0  # seconds
DEAD_AFTER = 120.0  # seconds without a renewal: three may fail
LEASES = "leases"  # the folder of them


@contextlib.contextmanager
def hold_lease(store: "Store", room: str) -> Iterator[Callable[[], None]]:
    """Hold a lease in ``room``; FastattnError where another lives there. Yields what raises when it was lost."""
    lease = _Lease(store, f"{room}/{LEASES}")
    lease.renew()
    ending, thread = threading.Event(), None
    try:
        lease.refuse_beside_others()
        thread = threading.Thread(target=lease.renew_until, args=(ending,), name="fastattn lease", daemon=True)
        start_thread(thread)
        yield lease.check
    finally:
        ending.set()
        if thread is not None and thread.is_alive():
            thread.join()
        with contextlib.suppress(StorageError):  # then it dies of age
            lease.give_back()


class _Lease:
    def __init__(self, store: "Store", folder: str):
        self._store = store
        self._folder = folder
        self._name = f"{os.urandom(8).hex()}.json"
        self._is_lost = False
        self._seen = 0  # when it was written, by the last listing after that

    def renew(self) -> None:
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        self._store.write(f"{self._folder}/{self._name}", json.dumps({"holder": holder}).encode())

    def refuse_beside_others(self) -> None:
        leases = self._store.list(self._folder)
        if self._name not in leases:
            raise StorageError(f"cannot hold {self._store.name}: what was written there is not listed")
        own = leases.pop(self._name)
        self._seen = own.modified
        ages = {name: (own.modified - entry.modified) / 1e9 for name, entry in leases.items()}
        living = min(ages, key=lambda name: ages[name], default=None)
        if living is not None and ages[living] < DEAD_AFTER:
            raise FastattnError(
                f"{self._store.name}: another job is at work there, or was killed less than {DEAD_AFTER:.0f} seconds "
                f"ago (seen {max(0, ages[living]):.0f} seconds ago{self._holder(living)})"
            )
        for name in ages:
            self._store.delete(f"{self._folder}/{name}")

    def renew_until(self, ending: threading.Event) -> None:
        """Renew it now and then. What fails is tried again; what another job has deleted is lost."""
        while not (self._is_lost or ending.wait(RENEWED_AFTER)):
            with contextlib.suppress(StorageError):
                self._is_lost = self._name not in self._store.list(self._folder)
                if not self._is_lost:
                    self.renew()
                    self._is_lost = self._is_beside_another()

    def _is_beside_another(self) -> bool:
        """Whether another job may have found this lease dead before it was renewed: its own is there then.

        One that finds a lease which lives is refused, so that its own says nothing. A renewal may be dated when it was
        begun: hence the margin.
        """
        leases = self._store.list(self._folder)
        if self._name not in leases:
            return True
        before, self._seen = self._seen, leases[self._name].modified
        return len(leases) > 1 and (self._seen - before) / 1e9 > DEAD_AFTER - RENEWED_AFTER

    def check(self) -> None:
        if self._is_lost:
            raise StorageError(
                f"{self._store.name}: not renewed for {DEAD_AFTER:.0f} seconds, so another job has begun there"
            )

    def give_back(self) -> None:
        self._store.delete(f"{self._folder}/{self._name}")

    def _holder(self, name: str) -> str:
        from fastattn.distributed.job import parse_object

        data = self._store.read(f"{self._folder}/{name}", 1 << 16)
        holder = (parse_object(data or b"") or {}).get("holder")
        return f", {holder[:100]}" if isinstance(holder, str) else ""
