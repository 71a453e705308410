"""Registration of FNA with transformers.

transformers has no events for what this package must know, so ``register`` wraps three of its methods: the end of a
model's construction, the change of its attention, and the saving of a configuration.
"""

from functools import wraps
from typing import Any

from transformers import AttentionInterface, PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface

from fna_lightning.integrations.hf.interface import fna_attention
from fna_lightning.integrations.hf.layers import attach, attach_at_construction, detach, refuse_unsupported
from fna_lightning.integrations.hf.settings import NAME, Settings
from fna_lightning.integrations.hf.window import fna_mask


def register() -> None:
    """Register the name with transformers."""
    AttentionInterface.register(NAME, fna_attention)
    AttentionMaskInterface.register(NAME, fna_mask)
    _wrap_post_init()
    _wrap_set_attn_implementation()
    _wrap_to_dict()


def _wrap_post_init() -> None:
    """Add the attention cores to models that are created with the name."""
    original = PreTrainedModel.post_init

    @wraps(original)
    def post_init(self: PreTrainedModel) -> None:
        original(self)
        attach_at_construction(self)

    PreTrainedModel.post_init = post_init  # type: ignore[method-assign]


def _wrap_set_attn_implementation() -> None:
    """Add or remove the attention cores of models that are switched later."""
    original = PreTrainedModel.set_attn_implementation

    @wraps(original)
    def set_attn_implementation(self: PreTrainedModel, attn_implementation: Any, *args: Any, **kwargs: Any) -> None:
        if attn_implementation == NAME:
            refuse_unsupported(self)
        original(self, attn_implementation, *args, **kwargs)
        if self.config._attn_implementation == NAME:
            settings = Settings.read(self.config)
            settings.write(self.config)
            attach(self, settings, replace=False)
        elif isinstance(attn_implementation, str):
            detach(self)

    PreTrainedModel.set_attn_implementation = set_attn_implementation  # type: ignore[method-assign]


def _wrap_to_dict() -> None:
    """Save the name with a configuration, from which transformers reads it when it loads the model.

    transformers itself does not save the attention of a model. The name is not stored in the configuration but derived
    when it is saved, so that it is always the attention that the model has at that time.
    """
    original = PreTrainedConfig.to_dict

    @wraps(original)
    def to_dict(self: PreTrainedConfig) -> dict[str, Any]:
        fields = original(self)
        if getattr(self, "_attn_implementation", None) == NAME:
            fields["attn_implementation"] = NAME
        return fields

    PreTrainedConfig.to_dict = to_dict  # type: ignore[method-assign]
