"""Sweeps over DeepSpeed's offload and reload of engine states, measured into a database."""

__version__ = "0.1.0"
