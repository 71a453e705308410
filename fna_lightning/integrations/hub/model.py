"""A trained model as a folder that can be shared: safetensors weights, configuration as JSON, and a model card.

``push_to_hub`` uploads the folder to the Hugging Face Hub, and ``from_pretrained`` loads it from there.
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

from fna_lightning.checkpoints.load import build_task, read_checkpoint, task_of
from fna_lightning.checkpoints.locate import checkpoint_file
from fna_lightning.config.registry import register_builtins
from fna_lightning.config.resolve import deviations
from fna_lightning.errors import UsageError
from fna_lightning.integrations.hub.card import model_card
from fna_lightning.integrations.hub.folder import CONFIG, find_folder, load_weights, read_config, record_digest
from fna_lightning.task import Task
from fna_lightning.tasks.data.codec import read_codec
from fna_lightning.tasks.text.codec import TextCodec
from fna_lightning.tasks.text.predict import classify
from fna_lightning.training.run_folder import read_results, run_folder_of

WAY_OUT = "install the package of the class as a plug-in, or export the model again"


class PublishedModel(nn.Module, PyTorchModelHubMixin, library_name="fna-lightning", tags=["fractional-attention"]):
    """A trained task with everything needed to use it.

    Args:
        model_config: configuration of the task, as stored in its checkpoint.
        codec: preprocessing of texts or images, as stored in the checkpoint; None for a task without one.
        about: facts for the model card: config, results, deviations.
        task: the task, if it is already built; it is not stored.

    Example:
        ``PublishedModel.from_pretrained("folder").classify(["a film to remember"])``
    """

    def __init__(
        self,
        model_config: dict[str, Any],
        codec: dict[str, Any] | None = None,
        about: dict | None = None,
        task: Task | None = None,
    ) -> None:
        super().__init__()
        # The model_config may name its task by its short name.
        register_builtins()
        self.task = task or build_task(model_config, source="the exported model", way_out=WAY_OUT)
        self.task.model_config = model_config
        self.model_config = model_config
        self.codec_state = codec
        self.codec = None if codec is None else read_codec(codec, "the exported model")
        self.about = about or {}

    @classmethod
    def from_checkpoint(cls, path: str | Path) -> Self:
        """Return the model of a checkpoint or a run folder, in evaluation mode, with the results of its run folder."""
        register_builtins()
        path = checkpoint_file(path)
        checkpoint = read_checkpoint(path)
        task = task_of(checkpoint, path)
        model = cls(checkpoint["model_config"], checkpoint.get("codec"), _run_facts(path), task)
        return model.eval()

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **options: Any) -> Self:
        """Return the model of a folder or of the hub, in evaluation mode, on the CPU. Loading never executes code.

        Args:
            pretrained_model_name_or_path: folder written by ``export`` or ``save_pretrained``, or a name on the hub.
            options: passed to ``huggingface_hub.snapshot_download``, such as revision, token or local_files_only.
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
        """Write the folder, with a digest in config.json that detects damaged weights.

        Args:
            save_directory: the folder.
            options: passed to ``huggingface_hub.ModelHubMixin.save_pretrained``.
        """
        config = {"model_config": self.model_config, "codec": self.codec_state, "about": self.about}
        # push_to_hub calls this method too, so the uploaded folder has the digest as well.
        url = super().save_pretrained(save_directory, **{**options, "config": config})
        record_digest(Path(save_directory))
        return url

    def forward(self, *inputs: Any) -> Any:
        """Run the model of the task."""
        return self.task(*inputs)

    def classify(self, texts: list[str]) -> list[dict[str, Any]]:
        """Return the label and the probability of each text."""
        if not isinstance(self.codec, TextCodec):
            raise ValueError(f"{type(self.task).__name__} is not a text classifier: call the model with its own inputs")
        return list(classify(self.task.eval(), self.codec, texts))

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        """Return the model card: the model, its training, its results, and its deviations from the paper."""
        count = sum(parameter.numel() for parameter in self.parameters())
        return ModelCard(model_card(self.model_config, self.about, count))


def _run_facts(checkpoint: str | Path) -> dict[str, Any]:
    """Return name, results and deviations of the run folder of a checkpoint; empty if it is in none."""
    folder = run_folder_of(checkpoint)
    if folder is None:
        return {}
    name = folder.parent.name
    return {"config": name, "results": read_results(folder), "deviations": deviations(f"{name}.yaml")}
