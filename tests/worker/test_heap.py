"""The heap of a rank when its loop begins: the same however the rank was started."""

from __future__ import annotations

import gc
import os
import resource
import weakref
from collections.abc import Callable, Iterator

import pytest

from orchestrator.spec.jobfile import JobFile
from worker import rank


class Node:
    """Something that can be part of a cycle."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def forked_job() -> JobFile:
    """A job whose ranks a fork server forks."""
    return JobFile(**{**dict.fromkeys(JobFile.__dataclass_fields__), "launch_mode": "fork"})  # type: ignore[arg-type]


@pytest.fixture
def frozen() -> Iterator[None]:
    """A heap as a fork server leaves it to its ranks."""
    gc.collect()
    gc.disable()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.enable()


def in_a_fork(see: Callable[[], bool]) -> bool:
    """Whether a forked child sees it so."""
    pid = os.fork()
    if pid == 0:
        saw = False
        try:
            saw = see()
        finally:
            os._exit(0 if saw else 1)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) == 0


def page_faults() -> int:
    """Of this process so far, those that need no disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


@pytest.mark.usefixtures("frozen")
def test_nothing_is_frozen_once_the_heap_is_settled(forked_job: JobFile) -> None:
    assert gc.get_freeze_count() > 0
    tracked = rank._settle_heap(forked_job, freeze=False)
    assert gc.get_freeze_count() == 0
    assert tracked > 1000


@pytest.mark.usefixtures("frozen")
def test_garbage_of_the_set_up_is_gone_once_the_heap_is_settled(forked_job: JobFile) -> None:
    garbage = weakref.ref(Node())
    assert garbage() is not None
    rank._settle_heap(forked_job, freeze=False)
    assert garbage() is None


@pytest.mark.usefixtures("frozen")
def test_pages_shared_with_the_server_are_copied_before_the_loop(forked_job: JobFile) -> None:
    def copies_all_but_few() -> bool:
        before = page_faults()
        rank._settle_heap(forked_job, freeze=False)
        settled = page_faults()
        gc.collect()
        return settled - before > 1000 and page_faults() - settled < 0.02 * (settled - before)

    assert in_a_fork(copies_all_but_few)


@pytest.mark.usefixtures("frozen")
def test_as_many_objects_are_counted_as_a_whole_collection_leaves(forked_job: JobFile) -> None:
    def counts_alike() -> bool:
        tracked = rank._settle_heap(forked_job, freeze=False)
        gc.collect()
        return abs(len(gc.get_objects()) - tracked) < 0.005 * tracked

    assert in_a_fork(counts_alike)


@pytest.mark.usefixtures("frozen")
def test_frozen_heap_is_counted_before_it_is_frozen(forked_job: JobFile) -> None:
    tracked = rank._settle_heap(forked_job, freeze=True)
    assert abs(gc.get_freeze_count() - tracked) < 10
