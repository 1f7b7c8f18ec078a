"""Core counts and Neuron releases: data, looked up exactly, refused with what would be right."""

from __future__ import annotations

import pytest

from trnbench.catalog.cores import allowed_core_counts, check_core_count, core_counts
from trnbench.catalog.neuron_releases import neuron_release, neuron_releases
from trnbench.status import UsageError


@pytest.mark.parametrize("profile", sorted({row.profile for row in core_counts()}))
def test_odd_counts_are_refused(profile: str) -> None:
    """H7: 3 cores on any Trainium are refused up front, with the allowed list in the sentence."""
    allowed = allowed_core_counts(profile)
    with pytest.raises(UsageError) as refused:
        check_core_count(profile, 3)
    assert ", ".join(str(count) for count in allowed) in str(refused.value)
    for count in allowed:
        check_core_count(profile, count)


def test_only_what_the_instance_forms() -> None:
    """H7: 24 where 1, 2, 8 and 32 are allowed."""
    with pytest.raises(UsageError, match="1, 2, 8, 32 cores only"):
        check_core_count("trn1.32xlarge", 24)


@pytest.mark.parametrize("count", [0, -1, 5, 129])
def test_counts_that_no_machine_has(count: int) -> None:
    with pytest.raises(UsageError):
        check_core_count("trn2.48xlarge", count)


def test_logical_cores_decide() -> None:
    check_core_count("trn2.48xlarge", 128, logical_core_config=1)
    with pytest.raises(UsageError):
        check_core_count("trn2.48xlarge", 128)
    with pytest.raises(UsageError, match="it has 1"):
        check_core_count("trn1.2xlarge", 1, logical_core_config=2)


def test_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"did you mean 'trn2\.48xlarge'"):
        check_core_count("trn2.48xlrage", 1)


def test_the_table_is_consistent() -> None:
    for row in core_counts():
        assert list(row.allowed) == sorted(set(row.allowed))
        assert row.source
    for profile in {row.profile for row in core_counts()}:
        assert sum(row.default for row in core_counts() if row.profile == profile) == 1


def test_releases() -> None:
    release = neuron_release("2.13.3.0+local")
    assert release is not None
    assert (release.stack, release.torch, release.neuronx_cc) == ("native", "2.13", "2.28.7631.0")
    assert neuron_release("9.9") is None
    assert neuron_release("1.0") is None
    for row in neuron_releases():
        assert row.torch_neuronx.startswith(row.torch)
        assert row.stack == ("native" if row.torch in {"2.13", "2.14"} else "xla")
