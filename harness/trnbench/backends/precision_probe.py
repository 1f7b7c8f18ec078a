"""Find out by trying whether a device computes in a precision: the types must run, and TF32 must change a result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.status import UsageError

if TYPE_CHECKING:
    import torch

    from trnbench.backends.base import Backend

_SIZE = 128

_TF32_STEP = 2.0**-11
"""Largest relative error of rounding one operand to TF32's 10 stored bits."""


def refusal(backend: Backend, precision: str) -> str | None:
    """One sentence saying why `precision` does not run on the open `backend`, None where it does.

    Raises `UsageError` where a deprecated switch is set: that is the user's to mend, not the device's to refuse.
    """
    try:
        if precision == "tf32":
            return _tf32_refusal(backend)
        with backend.numerics(precision):
            _try_operators(backend, precision)
    except UsageError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines()
        return f"{precision} does not run on {backend.device.type}: {lines[0] if lines else type(error).__name__}"
    return None


def _try_operators(backend: Backend, precision: str) -> None:
    """The operators that every workload needs, forward and backward, in the type of `precision`."""
    import torch
    from torch.nn import functional

    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    inputs = torch.ones(1, 2, 8, 16, dtype=dtype).to(backend.device).requires_grad_()
    weight = torch.ones(16, 16, dtype=dtype).to(backend.device)
    attended = functional.scaled_dot_product_attention(inputs, inputs, inputs, is_causal=True)
    loss = functional.silu(functional.linear(attended, weight)).float().sum()
    backend.materialize([loss, *torch.autograd.grad(loss, [inputs])])
    if not bool(torch.isfinite(loss.detach().cpu())):
        raise RuntimeError("a small attention layer gave a result that is not finite")


def _tf32_refusal(backend: Backend) -> str | None:
    """TF32 is real where the switch changes a matmul's error, and by no more than TF32's own rounding."""
    exact, switched = _matmul_error(backend, "fp32"), _matmul_error(backend, "tf32")
    if switched <= 2 * exact:
        return (
            f"tf32 is not computed on {backend.device.type}: with the switch set, the error of a "
            f"float32 matmul stays {switched:.1e} (without it {exact:.1e})"
        )
    if switched > 4 * _TF32_STEP:
        return f"with tf32 switched on, {backend.device.type} computes more coarsely than tf32: error {switched:.1e}"
    return None


def _matmul_error(backend: Backend, precision: str) -> float:
    """Largest error of a float32 matmul against float64, over the sum of its terms' absolute values."""
    import torch

    generator = torch.Generator().manual_seed(20)
    # Compilers keep graphs by shape, not by switch: a size of its own makes each precision compile anew.
    size = _SIZE + 8 * (precision == "tf32")
    left, right = (torch.randn(size, size, generator=generator) for _ in range(2))
    with backend.numerics(precision):
        product: torch.Tensor = left.to(backend.device) @ right.to(backend.device)
        backend.materialize([product])
        measured = product.cpu().double()
    wide = (left.double(), right.double())
    scale = wide[0].abs() @ wide[1].abs()
    return float(((measured - wide[0] @ wide[1]).abs() / scale).max())
