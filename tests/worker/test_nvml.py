"""The driver stays untouched in a fork server."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from worker import nvml, threads


class Driver(ModuleType):
    """A pynvml that counts its initialisations."""

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.calls = 0

    def nvmlInit(self) -> None:  # noqa: N802
        self.calls += 1


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    module = Driver()
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def test_put_off_initialises_nothing_and_gives_everything_back(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = SimpleNamespace(_cached_device_count=None, is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    with nvml.put_off():
        driver.nvmlInit()
        assert cuda._cached_device_count == 1
    assert driver.calls == 0
    assert cuda._cached_device_count is None
    driver.nvmlInit()
    assert driver.calls == 1


def test_rank_makes_up_for_what_was_put_off(driver: Driver) -> None:
    nvml.initialise()
    assert driver.calls == 1


def test_rank_without_nvml_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    nvml.initialise()


def test_threads_are_named() -> None:
    names = threads.thread_names()
    assert len(names) == threads.thread_count()
    assert names[0]
