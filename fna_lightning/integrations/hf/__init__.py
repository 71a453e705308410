"""FNA in the models of Hugging Face's transformers.

Importing this package registers ``attn_implementation="fna"`` with transformers, including its masks:

    from fna_lightning.integrations import hf
    model = AutoModel.from_pretrained(folder, attn_implementation="fna")        # alpha = 1.2, kappa by the text rule
    hf.enable(model, alpha=1.2, kappa="auto", batch=tokenizer(texts, ...))      # kappa calibrated per head

alpha and kappa are saved with the model's configuration. A reloaded model uses FNA again. If this package is not
imported, loading is an error; it never silently falls back to dot-product attention.
"""

try:
    import transformers  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "fna_lightning.integrations.hf needs transformers, which is not installed; pip install 'fna-lightning[hf]'"
    ) from error

from fna_lightning.integrations.hf.calibration import calibrated_kappa
from fna_lightning.integrations.hf.enable import disable, enable
from fna_lightning.integrations.hf.register import register
from fna_lightning.integrations.hf.settings import NAME

__all__ = ["NAME", "calibrated_kappa", "disable", "enable"]

register()
