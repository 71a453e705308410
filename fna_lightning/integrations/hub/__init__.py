"""Publishing a trained model as a folder or on the Hugging Face Hub."""

from fna_lightning.integrations.hub.model import PublishedModel

__all__ = ["PublishedModel"]
