"""Which parameters does a cell's model have? Answered without torch.

A shape lists the parameters in the order in which ``module.parameters()`` yields them, because the byte
formula depends on that order (sub-groups are cut along it). ``worker/model.py`` builds the same
parameters with torch; a test compares the two.

Sizes come from the axes for ``linear`` and ``transformer``. A named architecture takes all its sizes
from the table below; only ``nlayers`` greater than 1 cuts it down to that many layers (1, the default of
the axis, means the whole model). ``pkg.mod:factory`` has no shape here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from orchestrator.spec.axes import AXIS_BY_NAME, AxisValue


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter tensor: elements, and whether it trains."""

    name: str
    numel: int
    trainable: bool = True


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Every parameter of a model.

    Attributes:
        parameters: in ``module.parameters()`` order, a shared tensor once.
        groups: optimizer groups, each a tuple of indices into ``parameters``; trainable ones only.
        layer_numel: elements of the largest layer, for the estimate of what a step gathers.
        activation_numel: elements that the backward pass keeps for one sample, an estimate.
    """

    parameters: tuple[Parameter, ...]
    groups: tuple[tuple[int, ...], ...]
    layer_numel: int
    activation_numel: int

    @property
    def numel(self) -> int:
        """Elements of all parameters."""
        return sum(parameter.numel for parameter in self.parameters)

    @property
    def trainable_numel(self) -> int:
        """Elements of the trainable parameters."""
        return sum(parameter.numel for parameter in self.parameters if parameter.trainable)


@dataclass(frozen=True, slots=True)
class Architecture:
    """The facts of a decoder-only transformer that decide its parameters."""

    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    gated: bool = True
    tied: bool = False
    qkv_bias: bool = False
    head_dim: int | None = None

    @property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.head_dim or self.hidden // self.heads


ARCHITECTURES: dict[str, Architecture] = {
    "llama-2-7b": Architecture(4096, 11008, 32, 32, 32, 32000),
    "llama-2-13b": Architecture(5120, 13824, 40, 40, 40, 32000),
    "llama-2-70b": Architecture(8192, 28672, 80, 64, 8, 32000),
    "llama-3-8b": Architecture(4096, 14336, 32, 32, 8, 128256),
    "llama-3-70b": Architecture(8192, 28672, 80, 64, 8, 128256),
    "llama-3.2-1b": Architecture(2048, 8192, 16, 32, 8, 128256, tied=True),
    "llama-3.2-3b": Architecture(3072, 8192, 28, 24, 8, 128256, tied=True),
    "mistral-7b": Architecture(4096, 14336, 32, 32, 8, 32000),
    "qwen2.5-0.5b": Architecture(896, 4864, 24, 14, 2, 151936, tied=True, qkv_bias=True),
    "qwen2.5-1.5b": Architecture(1536, 8960, 28, 12, 2, 151936, tied=True, qkv_bias=True),
    "qwen2.5-7b": Architecture(3584, 18944, 28, 28, 4, 152064, qkv_bias=True),
    "qwen2.5-14b": Architecture(5120, 13824, 48, 40, 8, 152064, qkv_bias=True),
    "qwen2.5-32b": Architecture(5120, 27648, 64, 40, 8, 152064, qkv_bias=True),
    "qwen2.5-72b": Architecture(8192, 29568, 80, 64, 8, 152064, qkv_bias=True),
}
"""Public architectures by name; sizes as published in their ``config.json``."""


def axis_value(values: Mapping[str, AxisValue], name: str) -> AxisValue:
    """The axis' value; where it is inactive or not given, what the worker then uses: its default."""
    value = values.get(name)
    return AXIS_BY_NAME[name].default if value is None else value


def axis_int(values: Mapping[str, AxisValue], name: str) -> int:
    """``axis_value`` of an integer axis."""
    return int(axis_value(values, name) or 0)


def is_factory(model: str) -> bool:
    """Whether ``model`` names a function of the user (``pkg.mod:factory``)."""
    return ":" in model


def is_known_model(model: str) -> bool:
    """Whether the model's parameters are known here."""
    return model in ("linear", "transformer") or model in ARCHITECTURES


def architecture(values: Mapping[str, AxisValue]) -> Architecture:
    """The transformer that the axes describe: ``transformer`` or a named architecture.

    Raises:
        KeyError: the model is neither.
    """
    model = str(axis_value(values, "model"))
    layers = axis_int(values, "nlayers")
    if model != "transformer":
        named = ARCHITECTURES[model]
        return replace(named, layers=min(layers, named.layers)) if layers > 1 else named
    hidden = axis_int(values, "hidden_dim")
    heads = axis_int(values, "num_heads") or max(1, hidden // 128)
    return Architecture(
        hidden=hidden,
        ffn=axis_int(values, "ffn_dim") or 4 * hidden,
        layers=layers,
        heads=heads,
        kv_heads=heads,
        vocab=axis_int(values, "vocab_size") or 32000,
        gated=False,
        tied=bool(axis_value(values, "tied_embeddings")),
    )


def frozen_layers(layers: int, fraction: float) -> int:
    """How many leading layers do not train: the fraction of the layers, halves rounded up."""
    return min(layers, int(fraction * layers + 0.5))


def shape_of(values: Mapping[str, AxisValue]) -> ModelShape | None:
    """The shape of the model that the axes describe; None for ``pkg.mod:factory`` and unknown names."""
    model = str(axis_value(values, "model"))
    fraction = float(axis_value(values, "frozen_fraction") or 0.0)
    groups = axis_int(values, "param_groups")
    if model == "linear":
        return _linear(axis_int(values, "hidden_dim"), axis_int(values, "nlayers"), fraction, groups)
    if is_known_model(model):
        return _transformer(architecture(values), axis_int(values, "seq_len"), fraction, groups)
    return None


def grouped(parameters: tuple[Parameter, ...], groups: int) -> tuple[tuple[int, ...], ...]:
    """The trainable parameters cut into at most ``groups`` runs of about equal count, in order.

    Runs, not an interleaving: ZeRO-3 lays its flat buffer out group by group.
    """
    trainable = [index for index, parameter in enumerate(parameters) if parameter.trainable]
    count = min(groups, len(trainable))
    bounds = [len(trainable) * k // count for k in range(count + 1)] if count else []
    return tuple(tuple(trainable[low:high]) for low, high in pairwise(bounds))


def _linear(hidden: int, layers: int, fraction: float, groups: int) -> ModelShape:
    frozen = frozen_layers(layers, fraction)
    parameters = tuple(
        Parameter(f"linears.{layer}.{kind}", numel, layer >= frozen)
        for layer in range(layers)
        for kind, numel in (("weight", hidden * hidden), ("bias", hidden))
    )
    layer = hidden * hidden + hidden
    return ModelShape(parameters, grouped(parameters, groups), layer, (layers + 1) * hidden)


def _layer(arch: Architecture) -> list[tuple[str, int]]:
    width, kv_width = arch.heads * arch.head_width, arch.kv_heads * arch.head_width
    layer = [("attention_norm.weight", arch.hidden)]
    for name, rows in (("q", width), ("k", kv_width), ("v", kv_width)):
        layer.append((f"{name}.weight", rows * arch.hidden))
        if arch.qkv_bias:
            layer.append((f"{name}.bias", rows))
    layer += [("o.weight", arch.hidden * width), ("ffn_norm.weight", arch.hidden)]
    if arch.gated:
        layer.append(("gate.weight", arch.ffn * arch.hidden))
    return [*layer, ("up.weight", arch.ffn * arch.hidden), ("down.weight", arch.hidden * arch.ffn)]


def _transformer(arch: Architecture, seq_len: int, fraction: float, groups: int) -> ModelShape:
    frozen = frozen_layers(arch.layers, fraction)
    layer = _layer(arch)
    # The embedding comes before the first layer: it is frozen as soon as that one is.
    parameters = [Parameter("embedding.weight", arch.vocab * arch.hidden, frozen == 0)]
    for index in range(arch.layers):
        parameters += [Parameter(f"layers.{index}.{name}", numel, index >= frozen) for name, numel in layer]
    parameters.append(Parameter("norm.weight", arch.hidden))
    if not arch.tied:
        parameters.append(Parameter("head.weight", arch.vocab * arch.hidden))
    every = tuple(parameters)
    layer_numel = max(sum(numel for _, numel in layer), arch.vocab * arch.hidden)
    # Roughly what each layer keeps per token (norms, q, k, v, attention output, feed-forward), and logits.
    per_token = arch.layers * (6 * arch.hidden + 3 * arch.ffn) + 3 * arch.vocab
    return ModelShape(every, grouped(every, groups), layer_numel, seq_len * per_token)
