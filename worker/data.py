"""Random batches: one fixed batch a rank for the measured loop, and the example's data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from orchestrator.spec.axes import AxisValue
from orchestrator.spec.models import architecture, axis_int, axis_value, is_factory
from worker.model import DTYPES


def make_batch(module: Any, values: Mapping[str, AxisValue], device: Any) -> tuple[Any, ...]:
    """One batch on the device, the positional arguments of the model's ``forward``.

    A factory's module may bring ``random_batch(micro_batch, device, dtype)``; without it it gets what
    the linear model gets: a (micro_batch, hidden_dim) tensor and integer labels.
    """
    count, hidden = axis_int(values, "micro_batch"), axis_int(values, "hidden_dim")
    dtype = DTYPES[str(axis_value(values, "dtype"))]
    model = str(axis_value(values, "model"))
    if is_factory(model) and hasattr(module, "random_batch"):
        return tuple(module.random_batch(count, device, dtype))
    if is_factory(model) or model == "linear":
        data = torch.randn(count, hidden, device=device, dtype=dtype)
        return data, torch.randint(hidden, (count,), device=device)
    tokens = torch.randint(
        architecture(values).vocab, (count, axis_int(values, "seq_len") + 1), device=device
    )
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def random_dataset(total_samples: int, hidden_dim: int, device: Any, dtype: Any) -> Any:
    """Normal inputs of width ``hidden_dim`` with uniform labels, on the device."""
    data = torch.randn(total_samples, hidden_dim, device=device, dtype=dtype)
    labels = torch.randint(hidden_dim, (total_samples,), device=device)
    return torch.utils.data.TensorDataset(data, labels)


def random_dataloader(model: Any, total_samples: int, hidden_dim: int, device: Any, dtype: Any) -> Any:
    """A loader over ``random_dataset`` in batches of the engine's micro-batch size."""
    dataset = random_dataset(total_samples, hidden_dim, device, dtype=dtype)
    return torch.utils.data.DataLoader(dataset, batch_size=model.train_micro_batch_size_per_gpu())
