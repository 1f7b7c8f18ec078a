"""Profiles and limits: as the installed LoadGen's own configuration has them, where they are said to be its."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from trnbench.serving.profiles import SEEDS, limits, profile
from trnbench.status import UsageError
from trnbench.workloads.presets import PRESETS

SCRIPT = """
import json, sys
import mlperf_loadgen
found = {}
for model in sys.argv[1:]:
    settings = mlperf_loadgen.TestSettings()
    settings.FromConfig("", model, "Server", 0)
    found[model] = [
        settings.ttft_latency / 1e9, settings.tpot_latency / 1e9, settings.min_duration_ms / 1e3,
        settings.qsl_rng_seed, settings.sample_index_rng_seed, settings.schedule_rng_seed,
        settings.sample_concatenate_permutation,
    ]
print(json.dumps(found))
"""


def test_published_values_are_those_compiled_into_loadgen() -> None:
    names = {
        "llama3_1-8b": ("llama3.1-8b", "server"),
        "llama3_1-8b-interactive": ("llama3.1-8b", "interactive"),
        "llama2-70b": ("llama3.1-70b", "server"),
        "llama2-70b-interactive": ("llama3.1-70b", "interactive"),
    }
    done = subprocess.run([sys.executable, "-c", SCRIPT, *names], capture_output=True, text=True, check=True)
    for model, (ttft, tpot, seconds, *seeds, even) in json.loads(done.stdout).items():
        preset, scenario = names[model]
        found = limits(preset, scenario)
        assert found is not None
        assert (found.ttft, found.tpot) == (ttft, tpot), model
        assert model in found.source
        assert profile("full").least_seconds == seconds
        assert (SEEDS.library, SEEDS.order, SEEDS.schedule) == tuple(seeds)
        assert even


def test_llama_3_2_says_whose_limits_it_takes() -> None:
    for scenario in ("server", "interactive"):
        own, other = limits("llama3.2-1b", scenario), limits("llama3.1-8b", scenario)
        assert own is not None
        assert other is not None
        assert (own.ttft, own.tpot) == (other.ttft, other.tpot)
        assert own.source.startswith("none published for Llama 3.2 1B; those of Llama 3.1 8B")


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_has_limits_with_a_source_and_interactive_is_tighter(preset: str) -> None:
    server, interactive = limits(preset, "server"), limits(preset, "interactive")
    assert server is not None
    assert interactive is not None
    assert server.source
    assert 0 < interactive.ttft < server.ttft
    assert 0 < interactive.tpot < server.tpot
    assert limits(preset, "offline") is None


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"'quik'.*quick"):
        profile("quik")
    with pytest.raises(UsageError, match=r"no latency limits are known for preset 'mine'.*nano"):
        limits("mine", "server")


def test_full_asks_more_than_quick() -> None:
    quick, full = profile("quick"), profile("full")
    assert full.least_seconds == 600
    assert full.least_queries["offline"] == 24_576
    assert full.search_precision < quick.search_precision
    for name, least in quick.least_queries.items():
        assert full.least_queries[name] >= least
