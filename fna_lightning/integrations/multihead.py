"""Exchange of ``nn.MultiheadAttention`` modules in a model by FNA, with the same parameters."""

from typing import Any

from torch import nn

from fna_lightning.attention import ExternalAttention, Fractional, FractionalMultiheadAttention
from fna_lightning.attention.kappa import Kappa


def exchange(model: nn.Module, name: str, alpha: float, kappa: Kappa, **options: Any) -> FractionalMultiheadAttention:
    """Replace the ``nn.MultiheadAttention`` called ``name`` in a model, and return the new module.

    The new module has the same parameter objects, so optimizers and tied weights keep working.
    """
    module = model.get_submodule(name)
    assert isinstance(module, nn.MultiheadAttention)
    same_width = module.kdim == module.vdim == module.embed_dim
    extra = {"add_bias_kv": module.bias_k is not None, "add_zero_attn": module.add_zero_attn}
    layer = FractionalMultiheadAttention(
        module.embed_dim,
        module.num_heads,
        dropout=module.dropout,
        bias=module.in_proj_bias is not None,
        kdim=None if same_width else module.kdim,
        vdim=None if same_width else module.vdim,
        batch_first=module.batch_first,
        device="meta",
        alpha=alpha,
        kappa=kappa,
        **{option: value for option, value in extra.items() if value},
        **options,
    )
    for parameter_name, parameter in module.named_parameters(recurse=False):
        setattr(layer, parameter_name, parameter)
    layer.out_proj = module.out_proj
    # Values on the meta device cannot be moved, so learned ones are created again.
    core = ExternalAttention(Fractional(alpha, kappa, **options), module.num_heads, module.head_dim)
    layer.core = core.to(module.out_proj.weight)
    layer.train(module.training)
    put(model, module, layer)
    return layer


def put(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Replace a module wherever the model contains it; a shared module has several names."""
    for parent in list(model.modules()):
        for child_name, child in list(parent._modules.items()):
            if child is old:
                setattr(parent, child_name, new)
