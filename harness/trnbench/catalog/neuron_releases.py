"""Which versions of the Neuron stack were released together, so that a mixture is found before a sweep and named."""

from __future__ import annotations

import functools
from typing import Literal

import msgspec

from trnbench.catalog.tables import read_package_table


class NeuronRelease(msgspec.Struct, frozen=True, kw_only=True):
    """One version of torch-neuronx and its companions; versions are text, `driver_*` bounds are None where not said.

    `stack` is "native" (device `neuron`, from 2.13) or "xla" (up to 2.9): two products with one name.
    """

    torch_neuronx: str
    sdk: str
    stack: Literal["native", "xla"]
    torch: str
    neuronx_cc: str
    runtime: str
    driver: str
    driver_minimum: str | None
    driver_below: str | None
    python_first: str
    python_last: str
    source: str


@functools.cache
def neuron_releases() -> tuple[NeuronRelease, ...]:
    """All known releases, newest first."""
    return tuple(read_package_table("neuron_releases.csv", NeuronRelease, key=("torch_neuronx",)))


def neuron_release(torch_neuronx: str) -> NeuronRelease | None:
    """The release that an installed version of torch-neuronx belongs to, None for one the catalog does not hold.

    A local part of the version, after "+", is ignored.
    """
    public = torch_neuronx.partition("+")[0]
    return next((release for release in neuron_releases() if release.torch_neuronx == public), None)
