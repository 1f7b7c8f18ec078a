"""Model sizes: the hyperparameters that fix what a decoder computes, each with its published source."""

from __future__ import annotations

import difflib
from types import MappingProxyType

import msgspec

from trnbench.status import UsageError


class RopeScaling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Llama 3's stretching of rotary wavelengths (`rope_type` "llama3" in the Hugging Face configuration).

    Wavelengths above `original_max_positions / low_freq_factor` tokens are stretched by `factor`, those below
    `original_max_positions / high_freq_factor` are kept, and those between are interpolated.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int


class Preset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One decoder's hyperparameters. `source` says where they were published; it does not change what is computed."""

    name: str
    vocab_size: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_hidden: int
    rope_theta: float
    rope_scaling: RopeScaling | None
    norm_eps: float
    tied_head: bool
    max_positions: int
    source: str

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise UsageError(f"preset {self.name}: {self.heads} heads cannot share {self.kv_heads} kv_heads evenly")
        if self.head_dim % 2:
            raise UsageError(f"preset {self.name}: head_dim is {self.head_dim}; rotary embedding needs an even one")


def _llama31(
    name: str, *, layers: int, hidden: int, heads: int, head_dim: int, ffn_hidden: int, tied_head: bool, factor: float
) -> Preset:
    """A member of the Llama 3.1 and 3.2 text family: shared vocabulary, 8 kv heads, 128 k positions."""
    repository = "Llama-" + name.removeprefix("llama").upper()
    return Preset(
        name=name,
        vocab_size=128_256,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=8,
        head_dim=head_dim,
        ffn_hidden=ffn_hidden,
        rope_theta=500_000.0,
        rope_scaling=RopeScaling(factor=factor, low_freq_factor=1.0, high_freq_factor=4.0, original_max_positions=8192),
        norm_eps=1e-5,
        tied_head=tied_head,
        max_positions=131_072,
        source=f"config.json of https://huggingface.co/meta-llama/{repository}",
    )


_ALL = (
    Preset(
        name="nano",
        vocab_size=4096,
        layers=4,
        hidden=256,
        heads=8,
        kv_heads=4,
        head_dim=32,
        ffn_hidden=1024,
        rope_theta=10_000.0,
        rope_scaling=None,
        norm_eps=1e-5,
        tied_head=True,
        max_positions=4096,
        source="TrnBench's own: the Llama architecture in a size that a laptop trains in seconds",
    ),
    Preset(
        name="smollm2-135m",
        vocab_size=49_152,
        layers=30,
        hidden=576,
        heads=9,
        kv_heads=3,
        head_dim=64,
        ffn_hidden=1536,
        rope_theta=100_000.0,
        rope_scaling=None,
        norm_eps=1e-5,
        tied_head=True,
        max_positions=8192,
        source="config.json of https://huggingface.co/HuggingFaceTB/SmolLM2-135M",
    ),
    _llama31(
        "llama3.2-1b", layers=16, hidden=2048, heads=32, head_dim=64, ffn_hidden=8192, tied_head=True, factor=32.0
    ),
    _llama31(
        "llama3.1-8b", layers=32, hidden=4096, heads=32, head_dim=128, ffn_hidden=14_336, tied_head=False, factor=8.0
    ),
    _llama31(
        "llama3.1-70b", layers=80, hidden=8192, heads=64, head_dim=128, ffn_hidden=28_672, tied_head=False, factor=8.0
    ),
)

PRESETS: MappingProxyType[str, Preset] = MappingProxyType({preset.name: preset for preset in _ALL})
"""Every preset by name, smallest first."""


def preset(name: str) -> Preset:
    """The preset called `name`. Raises `UsageError` naming the nearest one, or all of them."""
    if name in PRESETS:
        return PRESETS[name]
    nearest = difflib.get_close_matches(name, PRESETS, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"the presets are {', '.join(PRESETS)}"
    raise UsageError(f"there is no model preset {name!r}; {hint}")


def parameter_shapes(preset: Preset) -> dict[str, tuple[int, ...]]:
    """Name and shape of every parameter in the order of the forward pass; matrices are [out, in].

    A tied head shares `embedding.weight` and has no entry of its own.
    """
    query_width = preset.heads * preset.head_dim
    kv_width = preset.kv_heads * preset.head_dim
    shapes: dict[str, tuple[int, ...]] = {"embedding.weight": (preset.vocab_size, preset.hidden)}
    for layer in range(preset.layers):
        prefix = f"layers.{layer}"
        shapes |= {
            f"{prefix}.attention_norm.weight": (preset.hidden,),
            f"{prefix}.attention.query.weight": (query_width, preset.hidden),
            f"{prefix}.attention.key.weight": (kv_width, preset.hidden),
            f"{prefix}.attention.value.weight": (kv_width, preset.hidden),
            f"{prefix}.attention.output.weight": (preset.hidden, query_width),
            f"{prefix}.feed_forward_norm.weight": (preset.hidden,),
            f"{prefix}.feed_forward.gate.weight": (preset.ffn_hidden, preset.hidden),
            f"{prefix}.feed_forward.up.weight": (preset.ffn_hidden, preset.hidden),
            f"{prefix}.feed_forward.down.weight": (preset.hidden, preset.ffn_hidden),
        }
    shapes["norm.weight"] = (preset.hidden,)
    if not preset.tied_head:
        shapes["head.weight"] = (preset.vocab_size, preset.hidden)
    return shapes


def parameter_count(preset: Preset) -> int:
    """Trainable numbers of the model; a tied head counts once."""
    total = 0
    for shape in parameter_shapes(preset).values():
        size = 1
        for extent in shape:
            size *= extent
        total += size
    return total
