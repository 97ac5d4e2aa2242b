"""The grammar beyond the cases: precedence, when, exclude, --set, options, places of errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.spec.axes import AXES
from orchestrator.spec.load import load_plan
from orchestrator.spec.options import RayOptions, SlurmOptions
from orchestrator.spec.presets import PRESETS, states_of
from tests.spec.reading import column, error, plan

# -- precedence and null ----------------------------------------------------------------------------


def test_empty_sweep_is_one_cell_of_defaults() -> None:
    (cell,) = plan("repeats: 1").cells
    assert dict(cell.values) == {axis.name: axis.default for axis in AXES}


def test_precedence_built_in_defaults_matrix_cells() -> None:
    made = plan(
        """
        defaults: {nlayers: 2, hidden_dim: 64}
        matrix: {nlayers: [3]}
        cells: [{hidden_dim: 32}]
        """
    )
    assert list(zip(column(made, "nlayers"), column(made, "hidden_dim"), strict=True)) == [(3, 64), (2, 32)]
    assert column(made, "seq_len") == [128, 128]


def test_cells_without_matrix_are_the_only_cells() -> None:
    assert column(plan("cells: [{nlayers: 2}, {nlayers: 3}]"), "nlayers") == [2, 3]


def test_null_means_the_default() -> None:
    made = plan("defaults: {nlayers: 2, hidden_dim: null}\nmatrix: {nlayers: [null, 3]}")
    assert column(made, "nlayers") == [2, 3]
    assert column(made, "hidden_dim") == [1024, 1024]


def test_null_of_a_nullable_axis_is_its_own_value() -> None:
    made = plan("defaults: {pin_memory_then: false}\nmatrix: {pin_memory_then: [null, true]}")
    assert column(made, "pin_memory_then") == [None, True]


def test_null_of_a_ds_axis_leaves_the_constant() -> None:
    made = plan("ds: {a: {b: 1}}\nmatrix: {ds.a.b: [null, 2], ds.a.c: [null, 5]}")
    assert [dict(cell.ds) for cell in made.cells] == [
        {"a": {"b": 1}}, {"a": {"b": 1, "c": 5}}, {"a": {"b": 2}}, {"a": {"b": 2, "c": 5}},
    ]  # fmt: skip


def test_section_with_nothing_below_it_counts_as_absent() -> None:
    assert len(plan("matrix:\nexclude:\nwhen:\nds:\nlimits:\nname: x").cells) == 1


def test_last_axis_varies_fastest() -> None:
    made = plan("matrix: {nlayers: [1, 2], seq_len: [3, 4]}\nzip: [{hidden_dim: [5, 6], iteration: [7, 8]}]")
    rows = zip(
        *(column(made, axis) for axis in ("nlayers", "seq_len", "hidden_dim", "iteration")), strict=True
    )
    assert list(rows)[:3] == [(1, 3, 5, 7), (1, 3, 6, 8), (1, 4, 5, 7)]
    assert made.varying == ("nlayers", "seq_len", "hidden_dim", "iteration")


# -- values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", ["bfloat16", "torch.bfloat16", "bf16"])
def test_dtype_has_one_canonical_name(spelling: str) -> None:
    assert column(plan(f"defaults: {{dtype: {spelling}}}"), "dtype") == ["bfloat16"]


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_preset_names_its_states(preset: str) -> None:
    (value,) = column(plan(f"defaults: {{included_state: {preset}}}"), "included_state")
    assert states_of(value) == PRESETS[preset]


def test_keep_lp_params_is_the_four_others() -> None:
    (value,) = column(plan("defaults: {included_state: keep_lp_params}"), "included_state")
    assert value == "optim_states+hp_params+lp_grads+contiguous_grad_buffer"


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("[hp_params, optim_states]", "optim_states+hp_params"),
        ("optim_states+hp_params", "optim_states+hp_params"),
        ("[optim_states, optim_states]", "optim_states"),
        ("[keep_lp_params, lp_params]", "all"),
        ("[all]", "all"),
        ("lp_grads", "lp_grads"),
    ],
)
def test_set_of_states_is_canonical(written: str, canonical: str) -> None:
    assert column(plan(f"defaults: {{included_state: {written}}}"), "included_state") == [canonical]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("defaults: {dtype: float8}", "2:19: dtype 'float8' is unknown; use bfloat16, float16 or float32"),
        ("defaults: {hidden_dim: 0}", "2:24: hidden_dim: 0 is too small; at least 1"),
        ("defaults: {hidden_dim: 1.5}", "2:24: hidden_dim: 1.5 is a number; write a whole number"),
        ("defaults: {hidden_dim: '64'}", "2:24: hidden_dim: '64' is a string; write a whole number"),
        ("defaults: {hidden_dim: true}", "2:24: hidden_dim: true is a boolean; write a whole number"),
        ("defaults: {hidden_dim: 3e9}", "2:24: hidden_dim: 3000000000 is too large; at most 2147483647"),
        ("defaults: {zero_stage: 4}", "2:24: zero_stage: 4 is too large; at most 3"),
        ("defaults: {dwell_s: .inf}", "2:21: dwell_s: inf is not finite; write a finite number"),
        ("defaults: {dwell_s: .nan}", "2:21: dwell_s: nan is not finite; write a finite number"),
        ("defaults: {ds.a: .nan}", "nan cannot stand in a DeepSpeed configuration"),
        ("defaults: {included_state: []}", "2:28: included_state: an empty set of states"),
        ("matrix: {included_state: [optim]}", "2:27: included_state: state 'optim' is unknown"),
        (
            "matrix: {included_state: [[hp_params, lp_param]]}",
            "2:39: included_state: state 'lp_param' is unknown",
        ),
        ("defaults: {model: liner}", "2:19: model 'liner' is unknown; did you mean 'linear'?"),
        ("defaults: {numa: left}", "2:18: numa 'left' is unknown"),
        ("defaults: {pin_backend: 'host_register:0'}", "pin_backend 'host_register:0' is unknown"),
        ("defaults: {model: 7}", "2:19: model: 7 is a number; write a string, quoted if need be"),
        ("defaults: {env.A: true}", "true is a boolean; an environment variable is a string"),
        ("defaults: {env.RANK: 1}", "RANK cannot be set by a sweep"),
        ("env: {1X: a}", "'1X' is not the name of an environment variable"),
        ("matrix: {nlayers: 3}", "2:19: nlayers: the matrix takes a list of values; write [value]"),
        ("matrix: {nlayers: []}", "2:19: nlayers: an empty list leaves no job"),
        ("matrix: {hiden_dim: [1]}", "2:10: there is no axis 'hiden_dim'; did you mean 'hidden_dim'?"),
        ("matrix: {ds: 3}", "'ds' holds DeepSpeed keys"),
        ("matrix: {ds..a: [1]}", "is not a path into the DeepSpeed configuration"),
        ("matrix: {nlayers: [1]}\nzip: [{nlayers: [2]}]", "'nlayers' is varied twice"),
        ("zip: [{nlayers: [2]}, {nlayers: [2]}]", "'nlayers' is varied twice"),
        ("matrix: {ds.a: [{b: 1}], ds.a.b: [2]}", "'ds.a.b' lies within 'ds.a'"),
        (
            "ds: {zero_optimization: {stage: 2}}",
            "ds.zero_optimization.stage is decided by the axis zero_stage",
        ),
        (
            "ds: {zero_optimization: 2}",
            "ds.zero_optimization is a section that holds zero_optimization.stage",
        ),
        ("matrix: {ds.bf16: [{enabled: true}]}", "ds.bf16.enabled is decided by the axis dtype"),
        ("defaults: {iteration: 5}", "warmup 5 leaves nothing of iteration 5 to measure"),
        ("matrix: {warmup: [1, 10]}", "2:18: warmup 10 leaves nothing of iteration 10"),
        (
            "defaults: {model: transformer, num_heads: 3, hidden_dim: 8}",
            "hidden_dim 8 is not a multiple of num_heads 3",
        ),
        ("matrix: {nlayers: [1]}\nexclude: [{nlayers: 1}]", "exclude leaves no job"),
    ],
)
def test_wrong_value_is_refused_with_its_place(text: str, message: str) -> None:
    assert message in error(text)


def test_integer_is_accepted_where_a_node_number_is_meant() -> None:
    assert column(plan("matrix: {numa: [0, none, device]}"), "numa") == ["0", "none", "device"]


def test_factory_of_the_user_is_a_model() -> None:
    assert column(plan("defaults: {model: my_pkg.models:build}"), "model") == ["my_pkg.models:build"]


def test_yes_as_a_ds_value_is_kept_with_a_warning() -> None:
    made = plan("ds: {a: {b: yes}}")
    assert made.cells[0].ds == {"a": {"b": "yes"}}
    assert "'yes' is a string in YAML 1.2" in made.warnings[0]


# -- when -------------------------------------------------------------------------------------------

CHAIN = """
matrix:
  pin_memory: [true, false]
  non_blocking: [true, false]
  reload_non_blocking: [true, false]
when:
  - {axis: reload_non_blocking, if: {non_blocking: true}}
  - {axis: non_blocking, if: {pin_memory: true}}
"""


def test_chain_of_when_is_settled_in_any_order() -> None:
    head, rules = CHAIN.split("when:\n")
    swapped = head + "when:\n" + "".join(reversed(rules.splitlines(keepends=True)))
    keys = [[cell.key for cell in plan(text).cells] for text in (CHAIN, swapped)]
    assert keys[0] == keys[1]
    rows = zip(*(column(plan(CHAIN), axis) for axis in ("pin_memory", "non_blocking", "reload_non_blocking")),
               strict=True)  # fmt: skip
    assert list(rows) == [(True, True, True), (True, True, False), (True, False, None), (False, None, None)]


def test_circle_of_when_is_refused() -> None:
    rules = "when: [{axis: nlayers, if: {seq_len: 1}}, {axis: seq_len, if: {nlayers: 1}}]"
    assert "when goes round in a circle: nlayers, seq_len" in error(rules)


def test_two_rules_of_one_axis_must_both_hold() -> None:
    made = plan(
        """
        matrix: {nlayers: [1, 2], pin_memory: [true, false], gc_freeze: [true]}
        when:
          - {axis: gc_freeze, if: {nlayers: 1}}
          - {axis: gc_freeze, if: {pin_memory: true}}
        """
    )
    assert column(made, "gc_freeze") == [True, None, None, None]


def test_inactive_ds_axis_is_left_out() -> None:
    made = plan(
        """
        matrix: {zero_stage: [2, 3], ds.zero_optimization.sub_group_size: [5, 6]}
        when: [{axis: ds.zero_optimization.sub_group_size, if: {zero_stage: 3}}]
        """
    )
    assert [dict(cell.ds) for cell in made.cells] == [
        {}, {"zero_optimization": {"sub_group_size": 5}}, {"zero_optimization": {"sub_group_size": 6}},
    ]  # fmt: skip


def test_when_applies_to_extra_cells_and_says_so() -> None:
    made = plan(
        """
        cells: [{pin_memory: false, non_blocking: true}]
        when: [{axis: non_blocking, if: {pin_memory: true}}]
        """
    )
    assert column(made, "non_blocking") == [None]
    assert "when makes non_blocking inactive in this cell" in made.warnings[0]


def test_when_takes_several_axes() -> None:
    made = plan("when: [{axis: [dwell_s, hold_bytes], if: {pin_memory: false}}]")
    assert (column(made, "dwell_s"), column(made, "hold_bytes")) == ([None], [None])


# -- conditions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("{nlayers: 2}", [1, 3, 4]),
        ("{nlayers: [1, 4]}", [2, 3]),
        ("{nlayers: {lt: 3}}", [3, 4]),
        ("{nlayers: {le: 3}}", [4]),
        ("{nlayers: {gt: 3}}", [1, 2, 3]),
        ("{nlayers: {ge: 3}}", [1, 2]),
        ("{nlayers: {ne: 3}}", [3]),
        ("{nlayers: {ne: [3, 4]}}", [3, 4]),
        ("{nlayers: {gt: 1, lt: 4}}", [1, 4]),
        ("{nlayers: 2, pin_memory: true}", [1, 3, 4]),
        ("{nlayers: 2, pin_memory: false}", [1, 2, 3, 4]),
        ("{nlayers: 2.0}", [1, 3, 4]),
        ("{included_state: [all, lp_params], nlayers: 1}", [2, 3, 4]),
        ("{included_state: [[lp_params, lp_grads]], nlayers: 1}", [1, 2, 3, 4]),
        ("{pin_memory_then: null, nlayers: 1}", [2, 3, 4]),
        ("{ds.a.b: 7, nlayers: 1}", [2, 3, 4]),
        ("{ds: {a: {b: {gt: 6}}}, nlayers: 1}", [2, 3, 4]),
        ("{env: {X: {ne: hi}}, nlayers: 1}", [1, 2, 3, 4]),
        ("{env.X: hi, nlayers: 1}", [2, 3, 4]),
    ],
)
def test_condition_excludes_what_it_matches(condition: str, left: list[int]) -> None:
    made = plan(
        f"ds: {{a: {{b: 7}}}}\nenv: {{X: hi}}\nmatrix: {{nlayers: [1, 2, 3, 4]}}\nexclude: [{condition}]"
    )
    assert column(made, "nlayers") == left


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("{nlayer: 1}", "there is no axis 'nlayer'; did you mean 'nlayers'?"),
        ("{ds.x: 1}", "the sweep sets no 'ds.x'"),
        ("{env.X: 1}", "the sweep sets no 'env.X'"),
        ("{nlayers: {like: 1}}", "'like' compares nothing"),
        ("{nlayers: {}}", "nlayers: an empty comparison"),
        ("{nlayers: []}", "nlayers: an empty list matches nothing"),
        ("{pin_memory: yes}", "'yes' is a string in YAML 1.2; write true or false"),
        ("{pin_memory: {lt: true}}", "lt compares numbers"),
        ("{dtype: {gt: float16}}", "gt compares numbers"),
        ("{}", "an empty condition"),
    ],
)
def test_wrong_condition_is_refused(condition: str, message: str) -> None:
    assert message in error(f"matrix: {{nlayers: [1, 2]}}\nexclude: [{condition}]")


def test_inactive_axis_meets_no_comparison() -> None:
    made = plan(
        """
        matrix: {pin_memory: [true, false], non_blocking: [true, false]}
        when: [{axis: non_blocking, if: {pin_memory: true}}]
        exclude: [{non_blocking: {ne: true}}]
        """
    )
    assert column(made, "non_blocking") == [True, None]


# -- --set ------------------------------------------------------------------------------------------

BASE = """
defaults: {nlayers: 2, hidden_dim: 64}
matrix: {pin_memory: [true, false], ds.a.b: [1, 2]}
zip: [{seq_len: [1, 2], micro_batch: [3, 4]}]
cells: [{pin_memory: false, nlayers: 9}]
"""


@pytest.mark.parametrize(
    ("override", "axis", "values"),
    [
        ("pin_memory=false", "pin_memory", {False}),
        ("pin_memory=[false]", "pin_memory", {False}),
        ("nlayers=7", "nlayers", {7}),
        ("nlayers=[7, 8]", "nlayers", {7, 8}),
        ("seq_len=5", "seq_len", {5}),
        ("hidden_dim=1e3", "hidden_dim", {1000}),
        ("ds.a.b=5", "ds.a.b", {5}),
        ("ds.a={b: 6}", "ds.a.b", {6}),
        ("env.X=hello", "env.X", {"hello"}),
        ("included_state=[[optim_states, hp_params]]", "included_state", {"optim_states+hp_params"}),
        ("pin_memory_then=null", "pin_memory_then", {None}),
    ],
)
def test_set_replaces_an_axis_everywhere(override: str, axis: str, values: set[object]) -> None:
    assert set(column(plan(BASE, overrides=[override]), axis)) == values


def test_set_of_a_list_multiplies_and_keeps_the_place_in_the_matrix() -> None:
    made = plan("matrix: {nlayers: [1], seq_len: [3, 4]}", overrides=["nlayers=[5, 6]"])
    rows = list(zip(column(made, "nlayers"), column(made, "seq_len"), strict=True))
    assert rows == [(5, 3), (5, 4), (6, 3), (6, 4)]


def test_set_of_a_list_multiplies_cells_without_a_matrix() -> None:
    made = plan("cells: [{nlayers: 1}, {nlayers: 2}]", overrides=["seq_len=[3, 4]"])
    rows = list(zip(column(made, "nlayers"), column(made, "seq_len"), strict=True))
    assert rows == [(1, 3), (1, 4), (2, 3), (2, 4)]


def test_set_of_a_key_lies_over_a_matrix_of_sections() -> None:
    made = plan("matrix: {ds.a: [{b: 1, c: 1}, {b: 2, c: 2}]}", overrides=["ds.a.b=9"])
    assert [dict(cell.ds) for cell in made.cells] == [{"a": {"b": 9, "c": 1}}, {"a": {"b": 9, "c": 2}}]


def test_set_repeats() -> None:
    made = plan("repeats: 2", overrides=["repeats=5"])
    assert (made.repeats, len(made.jobs)) == (5, 5)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("nlayers", "--set nlayers: is not AXIS=VALUE"),
        ("nlayers=1,2", "write a whole number; several values are a list: [1, 2]"),
        ("nlayers=1 2", "several values are a list: [1, 2]"),
        ("pin_memory=true; false", "several values are a list: [true, false]"),
        ("dtype=bfloat16,float16", "several values are a list: [bfloat16, float16]"),
        ("included_state=optim_states,hp_params", ", one set of them [[optim_states, hp_params]]"),
        ("NLAYERS=1", "did you mean 'nlayers'?"),
        ("n-layers=1", "did you mean 'nlayers'?"),
        ("timeout=5", "it is an option of its own: --timeout"),
        ("engine=slurm", "it is an option of its own: --engine"),
        ("limits.timeout=5", "write it into the sweep file"),
        ("=3", "is not AXIS=VALUE"),
        ("nlayers=", "--set nlayers=: has no value; write null for the default"),
        ("nlayers=100000000", "nlayers: 100000000 is too large; at most 10000"),
        ("dwell_s=1e308", "dwell_s: 1e+308 is too large; at most 1e+07"),
        (
            "ds.zero_optimization.sub_group_size=abc",
            "ds.zero_optimization.sub_group_size: 'abc' is a string; write a number of elements, or auto",
        ),
        ("ds.zero_optimization.reduce_bucket_size=true", "write a number of elements, or auto"),
        ("ds.data_types.grad_accum_dtype=foo", "write fp32, fp16 or bf16"),
        ("layers=3", "--set layers=3: there is no axis 'layers'; did you mean 'nlayers'?"),
        ("status=ok", "'status' is a reserved name"),
        (
            "pin_memory=yes",
            "--set pin_memory=yes: pin_memory: 'yes' is a string in YAML 1.2; write true or false",
        ),
        ("nlayers=010", "has a leading zero"),
        ("nlayers=[1", "--set nlayers=[1: "),
        ("repeats=0", "repeats must be a whole number from 1"),
        ("ds=3", "'ds' is not one axis"),
        ("warmup=10", "--set warmup=10: warmup 10 leaves nothing of iteration 10"),
    ],
)
def test_wrong_set_is_refused_naming_the_option(override: str, message: str) -> None:
    assert message in error("repeats: 1", overrides=[override])


# -- sizes ------------------------------------------------------------------------------------------

FIFTY = ", ".join(map(str, range(50)))
HUGE = "matrix:\n" + "".join(f"  ds.k{n}: [{FIFTY}]\n" for n in range(20))


def test_huge_product_is_refused_before_it_is_expanded() -> None:
    message = error(HUGE)
    assert f"the sweep has {50**20} cells (50 × 50" in message
    assert "at most 10000 jobs are allowed; shorten a list, or raise --max-jobs" in message


def test_count_includes_repeats() -> None:
    assert "the sweep has 8 jobs (2 cells × 4); at most 7 are allowed" in error(
        "repeats: 4\nmatrix: {nlayers: [1, 2]}", max_jobs=7
    )
    assert len(plan("repeats: 4\nmatrix: {nlayers: [1, 2]}", max_jobs=8).jobs) == 8


def test_endless_repeats_are_refused() -> None:
    assert "at most 10000 are allowed" in error("repeats: 1000000000000")


# -- the other keys ---------------------------------------------------------------------------------


def test_limits_are_read_with_and_without_their_unit() -> None:
    limits = plan("limits: {timeout: 60, grace_s: 2.5, retries: 0, consecutive_failures: 3}").limits
    assert (limits.timeout_s, limits.grace_s, limits.retries, limits.consecutive_failures) == (
        60.0,
        2.5,
        0,
        3,
    )


def test_engine_and_launcher_are_read_by_name_and_with_options() -> None:
    made = plan("engine: ray\nlauncher: spawn")
    assert (made.engine.name, made.engine.options, made.launcher.name) == ("ray", RayOptions(), "spawn")
    made = plan(
        "engine: {name: slurm, partition: gpu, extra: ['--exclusive'], mode: pilot}\n"
        "launcher: {name: fork, worker: 'my.mod:main'}"
    )
    assert made.engine.options == SlurmOptions(partition="gpu", extra=("--exclusive",), mode="pilot")
    assert made.launcher.worker == "my.mod:main"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("repeat: 3", "2:1: there is no key 'repeat' here; did you mean 'repeats'?"),
        ("a[b: 3", "2:1: there is no key 'a[b' here"),
        ("str: 3", "2:1: there is no key 'str' here"),
        ("repeats: 0", "2:10: repeats: should be greater than 0"),
        ("repeats: 2.5", "2:10: repeats: should be a valid integer"),
        ("repeats: '2'", "2:10: repeats: should be a valid integer"),
        ("order: foo", "2:8: order: should be 'interleave', 'random' or 'sequential'"),
        ("limits: {timeout: -1}", "2:19: limits.timeout: should be greater than 0"),
        ("limits: {timeout: 1, timeout_s: 2}", "'timeout' is given twice, once as 'timeout_s'"),
        ("limits: {timeout: 0}", "2:19: limits.timeout: should be greater than 0"),
        ("limits: {zz: 1}", "known: consecutive_failures, grace, hang, retries, start_timeout, timeout"),
        ("limits: {timout: 1}", "2:10: there is no key 'timout' here; did you mean 'timeout'?"),
        ("engine: slurmy", "2:9: there is no engine 'slurmy'; did you mean 'slurm'?"),
        ("engine: {partition: a}", "2:9: the engine has no name"),
        ("engine: {name: local, partition: a}", "2:23: there is no key 'partition' here"),
        ("engine: {name: slurm, mode: batch}", "2:29: mode: should be 'job' or 'pilot'"),
        ("launcher: {name: fork, wroker: a}", "2:24: there is no key 'wroker' here; did you mean 'worker'?"),
        ("when: [{axis: nlayers}]", "2:8: 'if' is missing"),
        ("when: [{axis: nlayers, if: {seq_len: 1}, foo: 1}]", "there is no key 'foo' here"),
        ("when: [{axis: nope, if: {seq_len: 1}}]", "2:15: there is no axis 'nope'"),
        ("when: [{axis: 3, if: {seq_len: 1}}]", "2:15: when.0.axis: should be a valid string"),
        ("matrix: [1]", "2:9: matrix: should be a mapping"),
        ("cells: {nlayers: 1}", "2:8: cells: should be a valid array"),
        ("name: ../evil", "1:7: the name '../evil' cannot be used in file names and commands"),
        ("name: ''", "1:7: the name '' cannot be used"),
        ("name: 5", "1:7: name: should be a valid string"),
    ],
)
def test_wrong_key_is_refused_with_its_place(text: str, message: str) -> None:
    assert message in error(text)


def test_all_mistakes_are_reported_at_once_in_order() -> None:
    lines = error("matrix:\n  a1: [1]\n  nlayers: [x]\n  dtype: [f]\n").splitlines()
    assert [line.split(":")[1] for line in lines] == ["3", "4", "5"]


def test_unused_anchor_is_no_excuse_for_an_unknown_key() -> None:
    assert "there is no key 'bases' here" in error("bases: &b {nlayers: 2}")
    assert "there is no key 'defualts' here" in error("defualts: &b {nlayers: 2}\ncells: [{<<: *b}]")


def test_name_falls_back_to_the_file_and_gives_way_to_the_option(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("matrix: {nlayers: [1]}\n")
    assert load_plan(path).name == "mine"
    assert load_plan(path, name="other").name == "other"
    with pytest.raises(SpecError, match="--name"):
        load_plan(path, name="a/b")
    assert "the sweep has no name" in error("# name: is missing\nrepeats: 1")


# -- ds base ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", ["@base.json", '"@base.json"', "'@base.json'  # comment"])
def test_ds_base_is_read_beside_the_sweep_file(tmp_path: Path, reference: str) -> None:
    (tmp_path / "base.json").write_text(
        '{"zero_optimization": {"overlap_comm": true}, "steps_per_print": 5e1}'
    )
    path = tmp_path / "sweep.yaml"
    path.write_text(
        f"name: a\nds: {reference}\nmatrix: {{ds.zero_optimization.overlap_comm: [null, false]}}\n"
    )
    first, second = load_plan(path).cells
    assert first.ds == {"zero_optimization": {"overlap_comm": True}, "steps_per_print": 50}
    assert second.ds == {"zero_optimization": {"overlap_comm": False}, "steps_per_print": 50}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "sweep.yaml:2:5: .*base.json cannot be read: No such file"),
        ("{", "base.json:1:2: is not JSON"),
        ("[1]", "base.json:1:1: holds no JSON object"),
        ('{"a": 1,\n "a": 2}', r"base.json:2:2: duplicate key 'a' \(first at line 1\)"),
        ('{"a": NaN}', "base.json:1:7: NaN is not JSON"),
        (
            '{"a": {}, "b": [1, {"c": "\\u00e9"}],\n "fp16": {\n  "enabled": true}}',
            "base.json:3:3: ds.fp16.enabled is decided by the axis dtype",
        ),
        ("[" * 50 + "]" * 50, "base.json:1:42: is nested more than 40 levels deep"),
    ],
)
def test_wrong_ds_base_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "base.json").write_text(text)
    path = tmp_path / "sweep.yaml"
    path.write_text("name: a\nds: @base.json\n")
    with pytest.raises(SpecError, match=message):
        load_plan(path)
