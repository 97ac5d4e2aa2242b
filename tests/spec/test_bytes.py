"""The byte formula against numbers published or measured elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.spec.bytes import Prediction, pinned_share, predict_values
from orchestrator.spec.models import ARCHITECTURES, shape_of


def predicted(ds: dict[str, object] | None = None, **axes: bool | int | float | str) -> Prediction:
    return predict_values(axes, ds or {})


def assert_within_tolerance(predicted_bytes: int | None, measured: int) -> None:
    assert predicted_bytes is not None
    assert abs(predicted_bytes - measured) <= max(1 << 20, measured // 1000)


def test_freed_example_readme_four_ranks_is_the_published_difference() -> None:
    assert predicted(hidden_dim=32768, nlayers=4, num_gpus=4).freed_bytes == 18_180_655_616


def test_freed_one_rank_bf16_is_to_the_byte_what_was_measured() -> None:
    prediction = predicted(hidden_dim=8192, nlayers=8)
    assert prediction.freed_bytes == 9_590_983_168
    assert prediction.parameters_total == 536_936_448
    assert prediction.per_state is not None
    assert prediction.per_state.as_dict() == {
        "hp_params": 2_147_745_792,
        "lp_params": 1_073_872_896,
        "lp_grads": 1_073_872_896,
        "optim_states": 4_295_491_584,
        "contiguous_grad_buffer": 1_000_000_000 + (-1_000_000_000 % 512),
        "persistent": 0,
    }


@pytest.mark.parametrize(("dtype", "measured"), [("float16", 5_295_491_584), ("float32", 7_370_047_488)])
def test_freed_other_dtypes_are_what_was_measured(dtype: str, measured: int) -> None:
    assert_within_tolerance(predicted(hidden_dim=8192, nlayers=4, dtype=dtype).freed_bytes, measured)


def test_pinned_two_ranks_rounds_each_buffer_to_a_power_of_two() -> None:
    assert predicted(hidden_dim=16384, nlayers=8, num_gpus=2).pinned_bytes == 34_359_836_672


def test_pinned_one_rank_is_the_measured_68_7_gb() -> None:
    prediction = predicted(hidden_dim=16384, nlayers=8)
    assert prediction.pinned_bytes == 68_719_673_344
    assert prediction.copied_bytes == 16 * 2_147_614_720


def test_pinned_exact_backend_is_what_is_copied() -> None:
    prediction = predicted(hidden_dim=16384, nlayers=8, pin_backend="exact")
    assert prediction.pinned_bytes == prediction.copied_bytes


def test_pinned_unpinned_blocking_is_nothing_and_non_blocking_is_partly_pinned() -> None:
    size: dict[str, Any] = {"hidden_dim": 1024, "nlayers": 1, "pin_memory": False}
    assert predicted(**size).pinned_bytes == 0
    hp_params, lp_params = 4 * 1_049_600, 2 * 1_049_600
    assert hp_params < 1 << 23 and lp_params < 1 << 22
    assert predicted(**size, non_blocking=True).pinned_bytes == (1 << 23) + (1 << 22)
    # ZeRO-1/2 moves Adam's moments with the same call.
    assert predicted(**size, non_blocking=True, zero_stage=2).pinned_bytes == 3 * (1 << 23) + (1 << 22)


def test_the_share_of_the_copies_that_goes_to_pinned_memory() -> None:
    assert pinned_share({}, {}) == 1.0  # pin_memory is on unless a cell says otherwise
    off: dict[str, Any] = {"pin_memory": False}
    assert pinned_share(off, {}) == 0.0
    # bfloat16, ZeRO-3: master weights 4 and weights 2 of the 16 bytes of a parameter; ZeRO-2: 14 of 14.
    assert pinned_share(off | {"non_blocking": True}, {}) == pytest.approx(6 / 16)
    assert pinned_share(off | {"non_blocking": True, "zero_stage": 2}, {}) == pytest.approx(1.0)
    only = {"non_blocking": True, "included_state": "lp_grads+optim_states"}
    assert pinned_share(off | only, {}) == 0.0
    assert pinned_share(off | {"non_blocking": True, "model": "mine:factory"}, {}) is None
    assert pinned_share({"pin_memory": True, "pin_memory_then": False}, {}) == 0.0


def test_stage12_keeps_whole_model_weights_and_no_gradients() -> None:
    prediction = predicted(hidden_dim=101, nlayers=3, num_gpus=2, zero_stage=1)
    padded = 30_908  # 3 x (101² + 101) = 30,906, padded to 2 x 2
    assert prediction.copied_bytes == 4 * padded // 2 + 2 * padded + 8 * padded // 2
    assert prediction.per_state is not None
    assert prediction.per_state.lp_grads == prediction.per_state.contiguous_grad_buffer == 0


def test_stage3_pads_each_parameter() -> None:
    # Weight 9 -> 5 and bias 3 -> 2 elements a rank.
    prediction = predicted(hidden_dim=3, nlayers=1, num_gpus=2)
    assert prediction.copied_bytes == (4 + 2 + 2 + 8) * 7


def test_ds_overrides_change_bucket_gradients_and_sub_groups() -> None:
    ds: dict[str, object] = {
        "zero_optimization": {"reduce_bucket_size": 1000, "sub_group_size": 5000},
        "data_types": {"grad_accum_dtype": "fp32"},
        "communication_data_type": "fp32",
    }
    prediction = predicted(ds, hidden_dim=64, nlayers=4)
    numel = 4 * (64 * 64 + 64)
    assert prediction.copied_bytes == (4 + 2 + 4 + 8) * numel
    assert prediction.per_state is not None
    assert prediction.per_state.contiguous_grad_buffer == 4096
    # Sub-groups: w b w = 8,256 then b w b = 4,224 ... each power of two apart from the other.
    assert prediction.pinned_bytes is not None
    assert prediction.pinned_bytes > predicted(hidden_dim=64, nlayers=4).pinned_bytes  # type: ignore[operator]


def test_included_states_free_their_share_and_the_persistent_parameters() -> None:
    prediction = predicted(hidden_dim=256, nlayers=2, num_gpus=2, included_state="hp_params")
    assert prediction.per_state is not None
    persistent = 2 * (256 * 256 + 256) * 2
    assert prediction.per_state.persistent == persistent
    assert prediction.freed_bytes == prediction.per_state.hp_params + persistent


def test_frozen_layers_have_no_master_weights() -> None:
    assert predicted(hidden_dim=64, nlayers=4, frozen_fraction=0.5).copied_bytes == 16 * 2 * (64 * 64 + 64)


def test_unknown_model_has_no_prediction() -> None:
    assert predicted(model="my.module:build").gpu_bytes is None


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("llama-2-7b", 6_738_415_616),
        ("llama-2-13b", 13_015_864_320),
        ("llama-2-70b", 68_976_648_192),
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
        ("llama-3.2-1b", 1_235_814_400),
        ("llama-3.2-3b", 3_212_749_824),
        ("mistral-7b", 7_241_732_096),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen2.5-1.5b", 1_543_714_304),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen2.5-14b", 14_770_033_664),
        ("qwen2.5-32b", 32_763_876_352),
        ("qwen2.5-72b", 72_706_203_648),
    ],
)
def test_named_architecture_has_its_published_parameter_count(model: str, parameters: int) -> None:
    assert predicted(model=model).parameters_total == parameters


def test_named_architecture_nlayers_above_one_cuts_it() -> None:
    whole, cut = shape_of({"model": "llama-2-7b"}), shape_of({"model": "llama-2-7b", "nlayers": 2})
    assert whole is not None and cut is not None
    layer = 202_383_360
    assert whole.numel - cut.numel == 30 * layer
    assert all(architecture.hidden % architecture.heads == 0 for architecture in ARCHITECTURES.values())


def test_groups_hold_each_trainable_parameter_once() -> None:
    shape = shape_of({"hidden_dim": 8, "nlayers": 5, "param_groups": 3, "frozen_fraction": 0.4})
    assert shape is not None
    assert [index for group in shape.groups for index in group] == [4, 5, 6, 7, 8, 9]
    assert len(shape.groups) == 3
