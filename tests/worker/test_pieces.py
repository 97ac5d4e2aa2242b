"""The small parts of a rank, without an engine."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from worker.failures import RankError, classify
from worker.numa import chosen_node, parse_cpu_list
from worker.recorder import Recorder

torch = pytest.importorskip("torch")

from orchestrator.spec.axes import AxisValue  # noqa: E402
from orchestrator.spec.models import shape_of  # noqa: E402
from worker import ops  # noqa: E402
from worker.checksum import Checksums, changed  # noqa: E402
from worker.clocks import measure  # noqa: E402
from worker.environment import variables  # noqa: E402
from worker.model import build_model, freeze, shape_of_module  # noqa: E402


def checksum_of(tensor: Any) -> int:
    sums = Checksums(["x"], "cpu", chunk=8)
    sums.take({"x": [tensor]})
    return sums.read()["x"]


def test_record_that_finds_no_room_says_where() -> None:
    recorder = Recorder(Path("/dev/full"))
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        recorder.write("start")
    recorder.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("position", [0, 7, 8, 36])
def test_checksum_any_single_bit_changes_it(dtype: Any, position: int) -> None:
    tensor = torch.randn(37).to(dtype)
    before = checksum_of(tensor)
    assert checksum_of(tensor.clone()) == before
    bits = tensor.view(torch.int32 if dtype is torch.float32 else torch.int16)
    for bit in (1, 2, 64):
        bits[position] ^= bit
        assert checksum_of(tensor) != before
        bits[position] ^= bit


def change_nan_payload(tensor: Any) -> None:
    tensor.view(torch.int32)[5] += 1


def swap_across_chunks(tensor: Any) -> None:
    tensor[1], tensor[9] = tensor[9].clone(), tensor[1].clone()


def negate_zero(tensor: Any) -> None:
    tensor[2] = -0.0


@pytest.mark.parametrize("fault", [change_nan_payload, swap_across_chunks, negate_zero])
def test_checksum_sees_what_comparing_floats_does_not(fault: Callable[[Any], None]) -> None:
    tensor = torch.arange(20, dtype=torch.float32)
    tensor[2], tensor[5] = 0.0, float("nan")
    before = checksum_of(tensor)
    fault(tensor)
    assert checksum_of(tensor) != before


def test_checksum_names_the_group_that_changed() -> None:
    sums = Checksums(["a", "b"], "cpu", chunk=8)
    states = {"a": [torch.ones(3)], "b": [torch.ones(4), torch.zeros(2)]}
    sums.take(states)
    before = sums.read()
    states["b"][1][0] = 1
    sums.take(states)
    assert changed(before, sums.read()) == ["b"]


@pytest.mark.parametrize(
    "axes",
    [
        {"hidden_dim": 16, "nlayers": 3, "frozen_fraction": 0.5, "param_groups": 2},
        {"model": "transformer", "hidden_dim": 64, "nlayers": 2, "vocab_size": 50, "frozen_fraction": 0.4},
        {"model": "transformer", "hidden_dim": 64, "nlayers": 1, "tied_embeddings": True, "num_heads": 2},
        {"model": "qwen2.5-0.5b"},
        {"model": "llama-3.2-1b", "nlayers": 2},
        {"model": "llama-2-7b", "nlayers": 2},
    ],
)
def test_model_has_exactly_the_parameters_of_its_shape(axes: dict[str, AxisValue]) -> None:
    with torch.device("meta"):
        module = build_model(axes)
    freeze(module, axes)
    shape = shape_of(axes)
    assert shape is not None
    assert shape_of_module(module, axes).parameters == shape.parameters
    assert shape_of_module(module, axes).groups == shape.groups


@pytest.mark.parametrize("model", ["transformer", "qwen2.5-0.5b"])
def test_model_transformer_computes_a_loss(model: str) -> None:
    with torch.device("meta"):
        module = build_model({"model": model, "hidden_dim": 64, "nlayers": 2, "vocab_size": 50})
        tokens = torch.zeros(2, 8, dtype=torch.long)
        assert module(tokens, tokens).shape == ()


def test_measure_reads_the_clock_around_call_device_and_barrier() -> None:
    order: list[str] = []
    timing = measure(
        lambda: order.append("call"), lambda: order.append("synchronize"), lambda: order.append("barrier")
    )
    assert order == ["synchronize", "barrier", "call", "synchronize", "barrier"]
    assert 0 < timing.host_s <= timing.done_s <= timing.all_s


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory. Tried"), "oom_gpu", None),
        (MemoryError(), "oom_host", None),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "oom_host", None),
        (RuntimeError("server socket has failed to bind: EADDRINUSE"), "failed", "port"),
        (RuntimeError("Error building extension 'fused_adam'"), "failed", "jit_build"),
        (AssertionError("Offloading is supported only for DeepSpeed FusedAdam."), "failed", "unsupported"),
        (RankError("wrong_device", "runs on B instead of A"), "failed", "wrong_device"),
        (RankError("unsupported", "fp16", status="skipped"), "skipped", "unsupported"),
        (RuntimeError("two\nlines"), "failed", "exception"),
    ],
)
def test_classify_failure_kinds(error: BaseException, status: str, kind: str | None) -> None:
    failure = classify(error)
    assert (failure.status, failure.failure_kind) == (status, kind)
    assert "\n" not in failure.message


def test_recorder_lines_are_complete_and_keep_nonfinite_numbers(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "spool" / "rank0.jsonl")
    recorder.write("iteration", a=float("nan"), b=[float("inf"), -float("inf")], c=1.5)
    text = (tmp_path / "spool" / "rank0.jsonl").read_text()
    assert text.endswith("\n")
    assert json.loads(text) == {"kind": "iteration", "a": "nan", "b": ["inf", "-inf"], "c": 1.5}
    recorder.close()


def test_environment_masks_secrets_and_leaves_out_what_the_cell_decides_and_what_moves_nothing() -> None:
    kept = variables(
        {
            "NCCL_DEBUG": "INFO",
            "HOME": "/root",
            "DS_API_KEY": "abc",
            "NCCL_ALGO": "Ring",
            "PYTORCH_CUDA_ALLOC_CONF": "pinned_use_cuda_host_register:True",
            "CUDA_PROXY": "http://user:pass@host",
            "CUDA_VISIBLE_DEVICES": "3",
        },
        {"NCCL_ALGO": "Ring"},
    )
    assert kept == {
        "NCCL_DEBUG": "INFO", "DS_API_KEY": "***", "CUDA_PROXY": "http://user:***@host",
    }  # fmt: skip


def test_numa_lists_and_choice() -> None:
    assert parse_cpu_list("0-2,8\n") == {0, 1, 2, 8}
    assert [chosen_node("none", 1), chosen_node("device", 1), chosen_node("0", 1)] == [None, 1, 0]


class Builder:
    """Stands where DeepSpeed's builder does; ``load`` is the fault under test."""

    name = "fused_adam"

    def __init__(self, load: Callable[[], object]) -> None:
        self._load = load

    def load(self, verbose: bool) -> None:
        self._load()

    def create_op_builder(self, name: str) -> Builder:
        return self


def test_b13_stale_lock_of_a_dead_build_is_removed_and_said(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    (tmp_path / "fused_adam").mkdir()
    lock = tmp_path / "fused_adam" / "lock"
    lock.touch()
    (notice,) = ops.load_fused_adam(Builder(lambda: None))
    assert str(lock) in notice
    assert not lock.exists()


def test_b13_lock_of_a_living_build_stays(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    descriptor = os.open(lock, os.O_CREAT | os.O_EXCL)
    try:
        assert not ops.clear_stale_lock(lock)
    finally:
        os.close(descriptor)
    assert ops.clear_stale_lock(lock)


def test_b13_build_that_never_ends_is_given_up(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    with pytest.raises(RankError, match="building fused_adam took longer than") as caught:
        ops.load_fused_adam(Builder(lambda: threading.Event().wait(60)), timeout_s=0.05)
    assert caught.value.failure_kind == "jit_build"


@pytest.mark.parametrize(
    ("message", "kind"),
    [("CUDA_HOME does not exist", "unsupported"), ("Error building extension 'fused_adam'", "jit_build")],
)
def test_build_failure_says_whether_it_could_ever_work(
    message: str, kind: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))

    def fail() -> None:
        raise RuntimeError(message)

    with pytest.raises(RankError, match=message) as caught:
        ops.load_fused_adam(Builder(fail))
    assert caught.value.failure_kind == kind


def test_build_arch_list_with_a_suffix_is_made_readable(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0 9.0a+PTX")
    seen: list[str] = []
    (notice,) = ops.load_fused_adam(Builder(lambda: seen.append(os.environ["TORCH_CUDA_ARCH_LIST"])))
    assert seen == ["8.0 9.0+PTX"]
    assert "9.0a" in notice


def test_build_uses_the_ninja_beside_this_python(tmp_path: Path, monkeypatch: Any) -> None:
    own = tmp_path / "venv"
    own.mkdir()
    (own / "ninja").touch()
    monkeypatch.setattr("sys.executable", str(own / "python"))
    monkeypatch.setenv("PATH", f"/usr/bin{os.pathsep}{own}")
    ops.use_own_tools()
    ops.use_own_tools()
    assert os.environ["PATH"] == f"{own}{os.pathsep}/usr/bin"


def test_factory_whose_module_is_not_on_the_path_is_told_how_to_find_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        ModuleNotFoundError, match="no module named 'own_models'; install it, or export PYTHONPATH"
    ):
        build_model({"model": "own_models:build"})
    # What is missing inside a module that is there keeps its own words.
    (tmp_path / "own_broken.py").write_text("import nowhere_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'nowhere_at_all'$"):
        build_model({"model": "own_broken:build"})
