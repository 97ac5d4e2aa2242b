"""Which devices and slots the local engine has, and what they admit."""

from __future__ import annotations

import pytest

from orchestrator.engines.choose import EngineChoice, choose, environments_of, setting_of
from orchestrator.engines.host import choose_devices, local_capacity, make_slots
from orchestrator.errors import EngineError, SpecError
from orchestrator.launch.devices import Device, Inventory
from orchestrator.spec.load import parse_plan
from orchestrator.spec.options import SlurmOptions


def device(index: int) -> Device:
    return Device(index, f"GPU-{index}{index}aa", "NVIDIA H200", 140_000_000_000, f"0:{index}", 0)


HOST = Inventory("cuda", (device(2), device(3)), 16, 100_000_000_000)
CPU = Inventory("cpu", (), 4, 8_000_000_000)


def test_b7_slots_are_the_visible_devices_in_their_order() -> None:
    slots = make_slots(HOST, None, None)
    assert [slot.device_uuid for slot in slots] == ["GPU-22aa", "GPU-33aa"]
    capacity = local_capacity(HOST, slots)
    assert (capacity.slots, capacity.accelerator, capacity.label) == (2, "cuda", "2 x NVIDIA H200")
    assert capacity.probe_uuids == ("GPU-22aa", "GPU-33aa")


@pytest.mark.parametrize(
    ("asked", "uuids"),
    [(["1"], ["GPU-33aa"]), (["GPU-33", "0"], ["GPU-33aa", "GPU-22aa"]), (None, ["GPU-22aa", "GPU-33aa"])],
)
def test_gpus_are_indices_of_visible_devices_or_uuids(asked: list[str] | None, uuids: list[str]) -> None:
    assert [one.uuid for one in choose_devices(HOST, asked)] == uuids


@pytest.mark.parametrize("asked", [["2"], ["GPU-99"], ["GPU-"], ["0", "0"], ["x"]])
def test_gpus_unknown_ambiguous_or_twice_is_refused(asked: list[str]) -> None:
    with pytest.raises(EngineError):
        choose_devices(HOST, asked)


def test_gpus_on_a_host_without_any_is_refused() -> None:
    with pytest.raises(EngineError, match="visible: none"):
        make_slots(CPU, ["0"], None)


def test_slots_on_a_cpu_are_its_processors_unless_told() -> None:
    assert len(make_slots(CPU, None, None)) == 4
    assert len(make_slots(Inventory("cpu", (), 1, 1), None, None)) == 2  # a two-rank job can run
    assert [slot.name for slot in make_slots(CPU, None, 3)] == ["cpu-0", "cpu-1", "cpu-2"]
    assert local_capacity(CPU, make_slots(CPU, None, 1)).label == "CPU, 1 slot"


PLAN = parse_plan("name: s\nmatrix: {env.A: [x, y, y2]}\ndefaults: {hidden_dim: 8}\n")


def test_choose_command_line_replaces_engine_options_and_launcher() -> None:
    plan = choose(
        PLAN,
        EngineChoice("slurm", "spawn", settings=("partition=gpu", "time_minutes=5", "extra=#SBATCH -x a")),
    )
    assert plan.engine.options == SlurmOptions(partition="gpu", time_minutes=5, extra=("#SBATCH -x a",))
    assert plan.launcher.name == "spawn"
    assert setting_of(plan, "sqlite:///x").launcher == "spawn"


@pytest.mark.parametrize(
    "choice",
    [
        EngineChoice("slurm", slots=2),
        EngineChoice("ray", gpus=("0",)),
        EngineChoice("slurm", settings=("nonsense=1",)),
        EngineChoice("slurm", settings=("time_minutes=soon",)),
    ],
)
def test_choose_option_of_another_engine_or_of_wrong_type_is_refused(choice: EngineChoice) -> None:
    with pytest.raises(SpecError):
        choose(PLAN, choice)


def test_environments_of_are_distinct() -> None:
    assert environments_of(PLAN) == [{"A": "x"}, {"A": "y"}, {"A": "y2"}]
