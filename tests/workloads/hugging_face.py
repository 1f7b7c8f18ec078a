"""transformers' LlamaForCausalLM as a second implementation of the decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from trnbench.workloads.decoder import Decoder

LOGITS_LIMIT = 1e-5
"""Largest difference of float32 logits, relative to their norm."""

RENAMED = {
    "embedding": "model.embed_tokens",
    "norm": "model.norm",
    "head": "lm_head",
    "layers": "model.layers",
    "attention_norm": "input_layernorm",
    "feed_forward_norm": "post_attention_layernorm",
    "attention": "self_attn",
    "feed_forward": "mlp",
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "output": "o_proj",
    "gate": "gate_proj",
    "up": "up_proj",
    "down": "down_proj",
}


def hugging_face_name(name: str) -> str:
    return ".".join(RENAMED.get(piece, piece) for piece in name.split("."))


def twin(model: Decoder) -> Any:
    """transformers' model of the same configuration holding copies of the same weights."""
    import transformers

    preset = model.preset
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": preset.rope_theta}
    if preset.rope_scaling is not None:
        rope |= {
            "rope_type": "llama3",
            "factor": preset.rope_scaling.factor,
            "low_freq_factor": preset.rope_scaling.low_freq_factor,
            "high_freq_factor": preset.rope_scaling.high_freq_factor,
            "original_max_position_embeddings": preset.rope_scaling.original_max_positions,
        }
    config = transformers.LlamaConfig(
        vocab_size=preset.vocab_size,
        hidden_size=preset.hidden,
        intermediate_size=preset.ffn_hidden,
        num_hidden_layers=preset.layers,
        num_attention_heads=preset.heads,
        num_key_value_heads=preset.kv_heads,
        head_dim=preset.head_dim,
        max_position_embeddings=preset.max_positions,
        rms_norm_eps=preset.norm_eps,
        tie_word_embeddings=preset.tied_head,
        rope_theta=preset.rope_theta,
        # Older releases read the two keys apart, newer ones from one dictionary.
        rope_scaling=rope if preset.rope_scaling is not None else None,
        rope_parameters=rope,
        attn_implementation="eager",
    )
    other = transformers.LlamaForCausalLM(config).to(torch.float32)
    theirs = dict(other.named_parameters())
    ours = {hugging_face_name(name): parameter for name, parameter in model.named_parameters()}
    assert ours.keys() == theirs.keys()
    with torch.no_grad():
        for name, parameter in theirs.items():
            parameter.copy_(ours[name])
    return other


def relative(got: torch.Tensor, expected: torch.Tensor) -> float:
    return ((got.double() - expected.double()).norm() / expected.double().norm()).item()
