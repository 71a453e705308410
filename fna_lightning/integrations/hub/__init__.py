"""Publishing a trained model as a folder that others can load."""

from fna_lightning.integrations.hub.model import PublishedModel

__all__ = ["PublishedModel"]
