"""Initial weights from a seed: the same bits on every device, torch version and thread count."""

from __future__ import annotations

import zlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from trnbench.status import UsageError
from trnbench.workloads.decoder import Decoder

if TYPE_CHECKING:
    from trnbench.workloads.layers import Attention
    from trnbench.workloads.presets import Preset

COMPUTE_DTYPES: MappingProxyType[str, torch.dtype] = MappingProxyType(
    {
        "fp32": torch.float32,
        # TF32 is a way to multiply float32 operands; the backend's numerics switch turns it on.
        "tf32": torch.float32,
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
        "fp64": torch.float64,
    }
)
"""Dtype of matrix operands by precision. fp64 is the oracle's and belongs to no case."""

_STEP = 2.0**-28
_CHUNK_WORDS = 1 << 21


def initial_values(name: str, shape: tuple[int, ...], seed: int) -> npt.NDArray[np.float32]:
    """Initial value of the parameter `name`: ones for norms, else uniform on [-1/32, 1/32), deviation 0.018.

    Hugging Face's LlamaConfig draws from a normal distribution of deviation 0.02; a uniform one of nearly that width
    needs no logarithm, whose last bit differs between machines. Every value is a multiple of 2^-28 up to 2^-5, exact
    in float32, so that a later cast to any narrower dtype is the only rounding.
    """
    if name.endswith("norm.weight"):
        return np.ones(shape, dtype=np.float32)
    generator = np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(name.encode())]))
    values = np.empty(int(np.prod(shape)), dtype=np.float32)
    # In chunks: one matrix of the largest preset alone has 10^9 elements.
    for start in range(0, values.size, 2 * _CHUNK_WORDS):
        part = values[start : start + 2 * _CHUNK_WORDS]
        words = generator.random_raw((part.size + 1) // 2)
        halves = words.astype("<u8", copy=False).view("<u4")[: part.size]
        part[:] = (halves >> np.uint32(8)).astype(np.int32) - (1 << 23)
        part *= np.float32(_STEP)
    return values.reshape(shape)


def initialise(model: Decoder, seed: int) -> None:
    """Give every parameter its initial value, tensor by tensor, so that no second copy of the model is ever held."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.from_numpy(initial_values(name, tuple(parameter.shape), seed))
            parameter.copy_(values.to(parameter.dtype).to(parameter.device))


def compute_dtype(precision: str) -> torch.dtype:
    """The dtype of matrix operands; raises `UsageError` for an unknown precision."""
    if precision not in COMPUTE_DTYPES:
        raise UsageError(f"there is no precision {precision!r}; the precisions are {', '.join(COMPUTE_DTYPES)}")
    return COMPUTE_DTYPES[precision]


def build_model(
    preset: Preset,
    precision: str,
    device: torch.device | str,
    seed: int,
    *,
    attention: Attention = "fused",
    inference: bool = False,
    positions: int | None = None,
) -> Decoder:
    """A decoder on `device` whose weights depend on `preset` and `seed` alone, rounded once to the parameter dtype.

    For training, parameters are float32 masters (float64 for the oracle); for `inference` they have the compute
    dtype and no gradients. `positions` bounds the rotary table. Raises `UsageError` as `Decoder` does.
    """
    computed = compute_dtype(precision)
    master = torch.float64 if computed == torch.float64 else torch.float32
    model = Decoder(
        preset,
        computed,
        attention,
        parameter_dtype=computed if inference else master,
        device=device,
        positions=positions,
    )
    initialise(model, seed)
    model.requires_grad_(not inference)
    return model


def reference_model(model: Decoder, *, as_operands: bool = True, attention: Attention = "unfused") -> Decoder:
    """The float64 twin of `model` on the CPU, holding the device's own weights.

    With `as_operands` matrices are rounded as the model rounds them where it multiplies, so that a difference in the
    output is due to arithmetic alone; without it the masters are kept, as an optimizer step needs them.
    """
    reference = Decoder(
        model.preset, torch.float64, attention, positions=model.rotary.cos.shape[0], parameter_dtype=torch.float64
    )
    own: dict[str, Any] = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in reference.named_parameters():
            value = own[name].detach().cpu()
            if as_operands and value.ndim == 2:
                value = value.to(model.compute_dtype)
            parameter.copy_(value.to(torch.float64))
    return reference
