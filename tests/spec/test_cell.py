"""Identity of cells: pinned for ever, blind to what is not part of it."""

from __future__ import annotations

import hashlib
import json

import pytest

from orchestrator.spec.axes import AXES
from orchestrator.spec.cell import canonical_json, cell_key, flatten, make_cell, short_key
from tests.spec.reading import plan

# A key names results in people's databases. If one of these changes, their sweeps start again.
# fmt: off
GOLDEN = {
    "{}":
        "v1:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
    "{pin_memory: false}":
        "v1:4857b43a9117c2bad75564f487f2c2b86ee77ca4dabdc691e8e4a09c1ab8496a",
    "{hidden_dim: 4096, nlayers: 8, dtype: torch.float16}":
        "v1:a4d1e9ee6ea35d7839ad56c6c9081bf46bfb92197ca683c76a10ec507e6475fd",
    "{included_state: [hp_params, optim_states], non_blocking: true}":
        "v1:f868581351ba57789c01c42a53322198d4e6fafc600485b8324c5172e4d625fa",
    "{dwell_s: 1, hold_bytes: 2e10}":
        "v1:985c82bfb7c15d8e517c0942411b2729481bc65e4f55bff9a46d08a99f4c5af7",
    "{ds.zero_optimization.sub_group_size: 1e8, env.NCCL_DEBUG: INFO}":
        "v1:3c088ab5dc65990f51d8cb9729831e8b4eaef879ec8a95c7f028d24a40707cbb",
}
# fmt: on


@pytest.mark.parametrize("axes", GOLDEN)
def test_key_is_the_one_it_always_was(axes: str) -> None:
    (cell,) = plan(f"cells: [{axes}]").cells
    assert cell.key == GOLDEN[axes]


def test_key_is_the_hash_of_what_is_not_default() -> None:
    (cell,) = plan("cells: [{pin_memory: false, ds.a.b: 1.0, env.X: y}]").cells
    text = json.dumps({"ds": {"a": {"b": 1}}, "env": {"X": "y"}, "pin_memory": False}, separators=(",", ":"))
    assert cell.key == "v1:" + hashlib.sha256(text.encode()).hexdigest()


def test_inactive_axis_is_part_of_the_identity_as_null() -> None:
    assert make_cell({"non_blocking": None}).key != make_cell({}).key
    assert make_cell({"pin_memory_then": None}).key == make_cell({}).key


def test_axis_at_its_identity_default_is_left_out() -> None:
    for axis in AXES:
        assert make_cell({axis.name: axis.identity_default}).key == make_cell({}).key


@pytest.mark.parametrize(
    "text",
    [
        "name: b",
        "name: a\nrepeats: 4\norder: random\nseed: 3",
        "name: a\nlimits: {timeout: 3}",
        "name: a\nengine: slurm\nlauncher: deepspeed",
        "name: a\ndefaults: {hidden_dim: 1024.0}",
        "name: a\nds: {}\nenv: {}",
    ],
)
def test_key_is_blind_to_what_is_not_an_axis(text: str) -> None:
    assert plan(text).cells[0].key == plan("name: a").cells[0].key


def test_numbers_are_canonical() -> None:
    assert canonical_json({"b": [1.0, -0.0, 1.5, True], "a": 1e22}) == (
        '{"a":10000000000000000000000,"b":[1,0,1.5,true]}'
    )
    assert make_cell({"dwell_s": 1.0}).key == make_cell({"dwell_s": 1}).key


def test_nan_has_no_identity() -> None:
    with pytest.raises(ValueError):
        canonical_json(float("nan"))


def test_make_cell_refuses_an_unknown_axis() -> None:
    with pytest.raises(KeyError, match="nope"):
        make_cell({"nope": 1})


def test_inactive_axis_acts_as_its_default() -> None:
    cell = make_cell({"non_blocking": None, "num_gpus": 2, "num_nodes": 3})
    assert cell.effective("non_blocking") is False
    assert cell.ranks == 6


def test_parameters_are_flat() -> None:
    cell = make_cell({}, {"a": {"b": [1], "c": {}}}, {"X": "y"})
    assert cell.parameters() | {"ds.a.b": [1], "ds.a.c": {}, "env.X": "y"} == cell.parameters()
    assert flatten({"a": {"b": 1}, "c": 2}) == [("a.b", 1), ("c", 2)]


def test_short_key_is_six_digits() -> None:
    assert short_key("v1:3f9ac1d2") == "3f9ac1"
    key = cell_key(make_cell({}).values, {}, {})
    assert make_cell({}).short == key[3:9]
