"""An adapter's layers on a loaded model: which of them are trainable, and whether weights on disk fit them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.tuner.utils import load_adapters
from mlx_lm.utils import dequantize_model

from rlm_core.config import AdapterSection
from rlm_core.errors import AdapterError, one_line
from rlm_core.model import adapters
from rlm_core.model.tensors import flat, read_tensors
from rlm_core.records import AdapterRef


def put_on(model: nn.Module, base: str, adapter: AdapterRef) -> AdapterSection:
    """Put the adapter's layers and weights on the model and make only them trainable; the shape that it has.

    Raises:
        AdapterError: it is damaged, was made for another base, or does not fit the model.
    """
    adapters.check_adapter(base, adapter)
    shape = adapters.read_shape(adapter, len(model.layers))
    with misfit(base, adapter):
        load_adapters(model, adapter.path)
        make_trainable(model, shape)
        check_names(model, adapter)
    return shape


def make_trainable(model: nn.Module, shape: AdapterSection) -> None:
    """Make the parameters of the adapter that is on the model trainable, and nothing else.

    The only place that says which they are: training, checkpoints and adapter files take what is trainable.
    """
    model.freeze()
    keys = ["lora_a", "lora_b"] + (["m"] if shape.kind == "dora" else [])
    for layer in model.layers[-shape.layers :]:  # all of them when `layers` is 0
        for name, module in layer.named_modules():
            if name in shape.modules and shape.kind == "full":
                module.unfreeze()
            elif name in shape.modules and "lora_a" in module:
                module.unfreeze(recurse=False, keys=keys)


def check_names(model: nn.Module, adapter: AdapterRef) -> None:
    """Raises ValueError when the adapter's weights are not exactly those that are trainable in the model."""
    expected = flat(model.trainable_parameters())
    found = read_tensors(Path(adapter.path, adapters.WEIGHTS))
    # mlx-lm leaves what is missing at random values; what the config does not name would be lost when saving.
    if odd := sorted(expected.keys() ^ found.keys()):
        raise ValueError(f"weights and config do not agree about {odd[0]} and {len(odd) - 1} others")


@contextmanager
def misfit(base: str, adapter: AdapterRef) -> Iterator[None]:
    """Raises AdapterError in the place of what a library says when weights and model do not fit."""
    try:
        yield
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        raise AdapterError(f"{adapter.path} does not fit {base!r}: {one_line(error, 200)}") from error


def unpacked_on_cpu(model: nn.Module) -> nn.Module:
    """On a CPU the model in float32 and with no layer quantised; elsewhere as it is."""
    if mx.default_device() == mx.cpu:
        model = dequantize_model(model)
        model.set_dtype(mx.float32)
    return model
