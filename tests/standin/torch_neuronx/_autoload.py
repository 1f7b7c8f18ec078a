"""What torch runs at the end of its own import, through the entry point `torch.backends`."""

from __future__ import annotations

from torch.utils.backend_registration import _setup_privateuseone_for_python_backend


def autoload() -> None:
    from torch_neuronx import _register, neuron

    _setup_privateuseone_for_python_backend("neuron", backend_module=neuron)
    _register.register()
