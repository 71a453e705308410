"""A trained model as a folder others can load: weights as safetensors, the recipe as JSON, a model card.

The same folder goes to the Hugging Face hub (``push_to_hub``) and comes back (``from_pretrained``).
"""

from typing import Any

from torch import nn

try:
    from huggingface_hub import ModelCard, PyTorchModelHubMixin
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "fna_lightning.integrations.hub needs huggingface_hub; pip install 'fna-lightning[export]'"
    ) from error

from fna_lightning.checkpoint import build_task
from fna_lightning.classifying import classify
from fna_lightning.codec import TextCodec
from fna_lightning.integrations.model_card import model_card


class PublishedModel(nn.Module, PyTorchModelHubMixin, library_name="fna-lightning", tags=["fractional-attention"]):
    """A trained task with all that is needed to use it.

    Args:
        recipe: the task's configuration, as its checkpoint carries it.
        codec: how a text becomes token ids, as the checkpoint carries it; None for other tasks.
        about: what the model card says of its training: config, results, deviations, versions.

    Example:
        ``PublishedModel.from_pretrained("folder").classify(["a film to remember"])``
    """

    def __init__(self, recipe: dict[str, Any], codec: dict[str, Any] | None = None, about: dict | None = None) -> None:
        super().__init__()
        import fna_lightning.tasks  # noqa: F401 - a recipe may name its task by its short name

        self.task = build_task(recipe)
        self.task.recipe = recipe
        self.recipe = recipe
        self.codec = None if codec is None else TextCodec(**codec)
        self.about = about or {}

    def forward(self, *inputs: Any) -> Any:
        """Run the task's model."""
        return self.task(*inputs)

    def classify(self, texts: list[str]) -> list[dict[str, Any]]:
        """Return label and probability of each text."""
        if self.codec is None:
            raise ValueError(f"{type(self.task).__name__} is no text classifier: call the model with its own inputs")
        return list(classify(self.task.eval(), self.codec, texts))

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        """Return the card: what the model is, how it was trained, what it reached, where it departs from the paper."""
        parameters = sum(one.numel() for one in self.parameters())
        return ModelCard(model_card(self.recipe, self.about, parameters))
