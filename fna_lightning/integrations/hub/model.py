"""A trained model as a folder others can load: weights as safetensors, the model_config as JSON, a model card.

The same folder goes to the Hugging Face hub (``push_to_hub``) and comes back (``from_pretrained``).
"""

from pathlib import Path
from typing import Any, Self

from torch import nn

try:
    from huggingface_hub import ModelCard, PyTorchModelHubMixin
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "fna_lightning.integrations.hub needs huggingface_hub; pip install 'fna-lightning[export]'"
    ) from error

from fna_lightning.checkpoints.load import build_task
from fna_lightning.errors import UsageError
from fna_lightning.integrations.hub.card import model_card
from fna_lightning.integrations.hub.folder import CONFIG, find_folder, load_weights, read_config, record_digest
from fna_lightning.tasks.data.codec import read_codec
from fna_lightning.tasks.text.codec import TextCodec
from fna_lightning.tasks.text.predict import classify

WAY_OUT = "install the package of the class as a plug-in, or export the model again"


class PublishedModel(nn.Module, PyTorchModelHubMixin, library_name="fna-lightning", tags=["fractional-attention"]):
    """A trained task with all that is needed to use it.

    Args:
        model_config: the task's configuration, as its checkpoint carries it.
        codec: how texts or pictures become tensors, as the checkpoint carries it; None for a task without one.
        about: what the model card says of its training: config, results, deviations, versions.

    Example:
        ``PublishedModel.from_pretrained("folder").classify(["a film to remember"])``
    """

    def __init__(
        self, model_config: dict[str, Any], codec: dict[str, Any] | None = None, about: dict | None = None
    ) -> None:
        super().__init__()
        import fna_lightning.tasks  # noqa: F401 - a model_config may name its task by its short name

        self.task = build_task(model_config, source="the exported model", way_out=WAY_OUT)
        self.task.model_config = model_config
        self.model_config = model_config
        self.codec = None if codec is None else read_codec(codec, "the exported model")
        self.about = about or {}

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **options: Any) -> Self:
        """Return the model of a folder or of the hub, in evaluation mode, on the CPU; nothing stored in it is run.

        Args:
            pretrained_model_name_or_path: a folder that ``export`` or ``save_pretrained`` wrote, or a name on the hub.
            options: of ``huggingface_hub.snapshot_download``, such as revision, token or local_files_only.
        """
        folder = find_folder(pretrained_model_name_or_path, **options)
        config = read_config(folder)
        try:
            model = cls(**config)
        except UsageError as error:
            raise UsageError(f"{folder / CONFIG} cannot be built: {error}") from error
        load_weights(model, folder)
        return model.eval()

    def save_pretrained(self, save_directory: str | Path, **options: Any) -> str | None:
        """Write the folder, and into its config.json a digest by which damaged weights are noticed.

        Args:
            save_directory: the folder.
            options: of ``huggingface_hub.ModelHubMixin.save_pretrained``.
        """
        # push_to_hub saves a folder of its own by this method, so what is sent has the digest too
        url = super().save_pretrained(save_directory, **options)
        record_digest(Path(save_directory))
        return url

    def forward(self, *inputs: Any) -> Any:
        """Run the task's model."""
        return self.task(*inputs)

    def classify(self, texts: list[str]) -> list[dict[str, Any]]:
        """Return label and probability of each text."""
        if not isinstance(self.codec, TextCodec):
            raise ValueError(f"{type(self.task).__name__} is no text classifier: call the model with its own inputs")
        return list(classify(self.task.eval(), self.codec, texts))

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        """Return the card: what the model is, how it was trained, what it reached, where it departs from the paper."""
        parameters = sum(one.numel() for one in self.parameters())
        return ModelCard(model_card(self.model_config, self.about, parameters))
