"""Adapters on disk, in mlx-lm's format, with a section of ours in their config that says where they come from."""

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rlm_core.config import AdapterKind, AdapterSection, Config
from rlm_core.errors import AdapterError, one_line
from rlm_core.files import first_reason, sha256_of, write_json
from rlm_core.model.base_model import base_path, fingerprint, number_of_layers, quantisation_bits
from rlm_core.model.tensors import damage_of
from rlm_core.records import AdapterRef, PolicyRef

WEIGHTS = "adapters.safetensors"
CONFIG = "adapter_config.json"


def read_adapter(directory: str | Path) -> AdapterRef:
    """An adapter directory as a record.

    Raises:
        AdapterError: a file is missing.
    """
    directory = Path(directory).expanduser().absolute()
    for name in (CONFIG, WEIGHTS):
        if not (directory / name).is_file():
            raise AdapterError(f"{directory} is no adapter: {name} is missing")
    return AdapterRef(path=str(directory), sha256=sha256_of(directory / WEIGHTS))


def check_adapter(base: str, adapter: AdapterRef) -> None:
    """Refuse an adapter that is damaged or was made for another base.

    Raises:
        AdapterError: naming both bases, or both digests.
    """
    found = read_adapter(adapter.path)
    if found.sha256 != adapter.sha256:
        raise AdapterError(f"{adapter.path} is damaged: SHA-256 {found.sha256[:12]}…, recorded {adapter.sha256[:12]}…")
    made_for = read_adapter_config(adapter).get("rlm", {})
    known = made_for.get("base_fingerprint")
    if known is not None and known != fingerprint(base_path(base)):
        raise AdapterError(f"{adapter.path} was made for {made_for.get('base_model')!r}, not for {base!r}")


def base_policy(config: Config, say: Callable[[str], None] = lambda _: None) -> PolicyRef:
    """The config's base model without an adapter.

    Args:
        say: called with a line about each slow step, such as fetching the default model.

    Raises:
        ModelError: there is no such model.
    """
    return PolicyRef(base=config.model.base, fingerprint=fingerprint(base_path(config.model.base, say)))


def first_adapter(config: Config) -> AdapterRef | None:
    """What a project of this config begins with, or would begin with; None is the base model alone.

    Raises:
        AdapterError: it is no adapter, or one for another base, or its weights cannot be loaded.
    """
    if config.model.adapter is None:
        return None
    adapter = read_adapter(config.model.adapter)
    check_adapter(config.model.base, adapter)
    _check_weights(adapter)
    return adapter


def _check_weights(adapter: AdapterRef) -> None:
    """Refuse an adapter from elsewhere whose weights cannot be loaded.

    Raises:
        AdapterError: naming the file and what is wrong with it.
    """
    path = Path(adapter.path, WEIGHTS)
    if damage := damage_of(path):
        raise AdapterError(f"{path} cannot be loaded: {damage}")


def read_adapter_config(adapter: AdapterRef) -> dict[str, Any]:
    """An adapter's config, by mlx-lm's names; `rlm` is the section of ours, where it has one.

    Raises:
        AdapterError: it cannot be read, or is no adapter's.
    """
    path = Path(adapter.path, CONFIG)
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise AdapterError(f"{path} cannot be read: {one_line(error)}") from error
    if not isinstance(config, dict) or not isinstance(config.get("rlm", {}), dict):
        raise AdapterError(f"{path} is no adapter config")
    return config


def write_adapter_config(
    directory: Path, base: str, shape: AdapterSection, layers: int, origin: dict[str, Any]
) -> None:
    """Write the config beside an adapter's weights.

    Args:
        layers: how many of the model's layers are trained, counted from the last.
        origin: source adapter, run, iteration.
    """
    config = {
        "fine_tune_type": shape.kind,
        "num_layers": layers,
        "lora_parameters": lora_parameters(shape),
        "rlm": {"base_model": base, "base_fingerprint": fingerprint(base_path(base)), "kind": shape.kind, **origin},
    }
    write_json(directory / CONFIG, config)


def check_trainable(base: str, learner: AdapterRef | None, wanted: AdapterSection) -> None:
    """Refuse what cannot be trained as the config asks, before any work is done.

    Raises:
        AdapterError: the base's weights do not allow this kind, or the learner is of another kind or shape.
    """
    path = base_path(base)
    check_quantised(base, quantisation_bits(path), wanted.kind)
    if learner is None:
        return
    total = number_of_layers(path)
    found, wanted = read_shape(learner, total), settled(wanted, total)
    if total is None:  # a model that does not say how many layers it has: then 0 and a number may be the same
        found = found.model_copy(update={"layers": wanted.layers})
    if not same_shape(found, wanted):
        raise AdapterError(
            f"{learner.path} is {_described(found)}; train.adapter asks for {_described(wanted)}; "
            "set train.adapter to the former or start a new project"
        )


def check_quantised(base: str, bits: Collection[int], kind: AdapterKind) -> None:
    """Refuse a kind of training that a quantised base does not allow.

    Raises:
        AdapterError: the way out is in the message.
    """
    if kind == "full" and bits:
        # Also where they were unpacked: full weights would be saved in a form that the base has no place for.
        raise AdapterError(
            f"{base!r} is quantised, and quantised weights cannot be trained; set train.adapter.kind to lora or dora, "
            "or take a base that is not quantised"
        )
    if kind == "dora" and (odd := sorted(number for number in bits if 32 % number)):
        raise AdapterError(
            f"{base!r} is quantised to {odd[0]} bits, which mlx-lm's DoRA does not take; set train.adapter.kind to lora"
        )


def read_shape(adapter: AdapterRef, total: int | None) -> AdapterSection:
    """What an adapter's config says about its kind and shape.

    Args:
        total: layers of its base; None when not known.

    Raises:
        AdapterError: it does not say, or says something that is not possible.
    """
    config = read_adapter_config(adapter)
    try:
        kind, parameters = config.get("fine_tune_type", "lora"), config["lora_parameters"]
        low_rank = {} if kind == "full" else {"rank": parameters["rank"], "scale": parameters["scale"]}
        # mlx-lm writes -1 for all layers, and trains all where there are fewer than that.
        layers = max(config["num_layers"], 0)
        shape = AdapterSection.parse({"kind": kind, "layers": layers, "modules": parameters["keys"], **low_rank})
    except (KeyError, TypeError, AttributeError) as error:
        raise AdapterError(f"{adapter.path}/{CONFIG} does not give the adapter's shape: {error!r}") from error
    except ValidationError as error:
        raise AdapterError(f"{adapter.path}/{CONFIG} gives no possible shape: {first_reason(error)}") from error
    return settled(shape, total)


def settled(shape: AdapterSection, total: int | None) -> AdapterSection:
    """The shape with `layers` 0 where it names all layers or more, so that equal shapes are equal."""
    return shape.model_copy(update={"layers": 0}) if total is not None and shape.layers >= total else shape


def same_shape(one: AdapterSection, other: AdapterSection) -> bool:
    """Whether weights of the one can stand where those of the other stood."""
    return _comparable(one) == _comparable(other)


def _comparable(shape: AdapterSection) -> dict[str, Any]:
    return {**shape.model_dump(), "modules": set(shape.modules)}


def _described(shape: AdapterSection) -> str:
    low_rank = "" if shape.kind == "full" else f"rank {shape.rank}, scale {shape.scale:g}, "
    return f"{shape.kind} with {low_rank}layers {shape.layers or 'all'}, modules {'/'.join(shape.modules)}"


def lora_parameters(shape: AdapterSection) -> dict[str, Any]:
    """The shape in mlx-lm's words, which has this section for every kind."""
    if shape.kind == "full":
        return {"keys": list(shape.modules)}
    return {"rank": shape.rank, "scale": shape.scale, "dropout": 0.0, "keys": list(shape.modules)}
