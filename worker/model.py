"""The models that are trained: a linear stack as in DeepSpeed's example, a transformer, or the user's own.

Their parameters are exactly those that ``orchestrator.spec.models`` lists, in the same order. Weights are
random; nothing is downloaded.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from orchestrator.spec.axes import AxisValue
from orchestrator.spec.models import (
    Architecture,
    ModelShape,
    Parameter,
    architecture,
    axis_int,
    axis_value,
    frozen_layers,
    grouped,
    is_factory,
    shape_of,
)

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
"""Values of the ``dtype`` axis."""


class SimpleModel(nn.Module):
    """``nlayers`` square linear layers and a cross-entropy loss, as DeepSpeed's example has them."""

    def __init__(self, hidden_dim: int, empty_grad: bool = False, nlayers: int = 1) -> None:
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(hidden_dim, hidden_dim) for _ in range(nlayers)])
        if empty_grad:
            self.linear2 = nn.Linear(hidden_dim, hidden_dim)
        self.cross_entropy_loss = nn.CrossEntropyLoss()

    def forward(self, x: Any, y: Any) -> Any:
        """The loss of a batch."""
        for linear in self.linears:
            x = linear(x)
        return self.cross_entropy_loss(x, y)


class Norm(nn.Module):
    """Root-mean-square normalization with a weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Any) -> Any:
        """``x`` scaled to unit root mean square, times the weight."""
        return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * self.weight


class Layer(nn.Module):
    """Attention and feed-forward, each with its norm before it."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.arch = arch
        width, kv_width = arch.heads * arch.head_width, arch.kv_heads * arch.head_width
        self.attention_norm = Norm(arch.hidden)
        self.q = nn.Linear(arch.hidden, width, bias=arch.qkv_bias)
        self.k = nn.Linear(arch.hidden, kv_width, bias=arch.qkv_bias)
        self.v = nn.Linear(arch.hidden, kv_width, bias=arch.qkv_bias)
        self.o = nn.Linear(width, arch.hidden, bias=False)
        self.ffn_norm = Norm(arch.hidden)
        if arch.gated:
            self.gate = nn.Linear(arch.hidden, arch.ffn, bias=False)
        self.up = nn.Linear(arch.hidden, arch.ffn, bias=False)
        self.down = nn.Linear(arch.ffn, arch.hidden, bias=False)

    def forward(self, x: Any) -> Any:
        """The residual stream after this layer."""
        batch, length, _ = x.shape
        normed = self.attention_norm(x)

        def heads(projected: Any, count: int) -> Any:
            return projected.view(batch, length, count, self.arch.head_width).transpose(1, 2)

        q = heads(self.q(normed), self.arch.heads)
        k, v = heads(self.k(normed), self.arch.kv_heads), heads(self.v(normed), self.arch.kv_heads)
        repeat = self.arch.heads // self.arch.kv_heads
        if repeat > 1:
            k, v = k.repeat_interleave(repeat, dim=1), v.repeat_interleave(repeat, dim=1)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(attended.transpose(1, 2).reshape(batch, length, -1))
        normed = self.ffn_norm(x)
        up = functional.silu(self.gate(normed)) * self.up(normed) if self.arch.gated else self.up(normed)
        return x + self.down(up if self.arch.gated else functional.gelu(up))


class Transformer(nn.Module):
    """A decoder-only transformer without position embedding: the bytes are what counts here."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.embedding = nn.Embedding(arch.vocab, arch.hidden)
        self.layers = nn.ModuleList([Layer(arch) for _ in range(arch.layers)])
        self.norm = Norm(arch.hidden)
        if not arch.tied:
            self.head = nn.Linear(arch.hidden, arch.vocab, bias=False)
        self.is_tied = arch.tied

    def forward(self, tokens: Any, labels: Any) -> Any:
        """The cross-entropy of predicting ``labels``."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        logits = functional.linear(x, self.embedding.weight) if self.is_tied else self.head(x)
        return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def build_model(values: Mapping[str, AxisValue]) -> Any:
    """The module that the axes describe; call it under ``zero.Init`` for ZeRO-3.

    ``pkg.mod:factory`` is called with the mapping of axes and returns a module whose ``forward`` takes a
    batch and returns the loss (see ``worker.data.make_batch`` for the batch).
    """
    model = str(axis_value(values, "model"))
    if is_factory(model):
        module_name, _, function = model.partition(":")
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise
            fix = (
                "install it, or export PYTHONPATH with its folder: a rank does not look beside the sweep file"
            )
            raise ModuleNotFoundError(f"model {model}: no module named '{error.name}'; {fix}") from error
        return getattr(module, function)(values)
    if model == "linear":
        return SimpleModel(axis_int(values, "hidden_dim"), nlayers=axis_int(values, "nlayers"))
    return Transformer(architecture(values))


def freeze(module: Any, values: Mapping[str, AxisValue]) -> None:
    """Take the leading layers out of training, as ``frozen_fraction`` says."""
    fraction = float(axis_value(values, "frozen_fraction") or 0.0)
    if not fraction:
        return
    shape = shape_of(values)
    if shape is not None:
        trains = [parameter.trainable for parameter in shape.parameters]
    else:
        parameters = list(module.parameters())
        frozen = frozen_layers(len(parameters), fraction)
        trains = [index >= frozen for index in range(len(parameters))]
    for parameter, trainable in zip(module.parameters(), trains, strict=True):
        parameter.requires_grad_(trainable)


def shape_of_module(module: Any, values: Mapping[str, AxisValue]) -> ModelShape:
    """The shape of a real module, whoever made it; under ZeRO-3 by the sizes before partitioning."""
    parameters = tuple(
        Parameter(name, int(getattr(tensor, "ds_numel", tensor.numel())), bool(tensor.requires_grad))
        for name, tensor in module.named_parameters()
    )
    known = shape_of(values)
    largest = max((parameter.numel for parameter in parameters), default=0)
    return ModelShape(
        parameters,
        grouped(parameters, axis_int(values, "param_groups")),
        known.layer_numel if known else largest,
        known.activation_numel if known else 0,
    )


def parameter_groups(module: Any, shape: ModelShape) -> list[dict[str, Any]] | Iterable[Any]:
    """What ``deepspeed.initialize(model_parameters=...)`` gets for the shape's optimizer groups."""
    if len(shape.groups) == 1:
        return [tensor for tensor in module.parameters() if tensor.requires_grad]
    tensors = list(module.parameters())
    return [{"params": [tensors[index] for index in group]} for group in shape.groups]
