"""Write a trained model as a folder others can use: safetensors, configuration, model card; ONNX if wanted.

The folder is what `PublishedModel.from_pretrained` reads and `push_to_hub` sends. --onnx and --program write the text
classifier as a program that runs without this package, for any batch and length.

Examples:
  fna-lightning export runs/reviews_fna/version_0/checkpoints/best.ckpt published
  fna-lightning export best.ckpt published --onnx --program
"""

import argparse
from pathlib import Path
from typing import Any

from fna_lightning.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("checkpoint", metavar="CKPT", help="a checkpoint written by `fna-lightning fit`")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="where to write; made if it is not there")
    parser.add_argument("--onnx", action="store_true", help="also model.onnx (needs the extra `export`)")
    parser.add_argument("--program", action="store_true", help="also model.pt2, a torch.export program")


def run(args: argparse.Namespace) -> int:
    """Write the folder."""
    if args.folder.exists() and (not args.folder.is_dir() or any(args.folder.iterdir())):
        raise UsageError(f"{args.folder} is there already and not an empty folder; give a new one, or empty it")
    from fna_lightning.checkpoints.load import read_checkpoint
    from fna_lightning.tasks.text.codec import TextCodec

    model = published(read_checkpoint(args.checkpoint), args.checkpoint)
    if (args.onnx or args.program) and not isinstance(model.codec, TextCodec):
        raise UsageError(
            f"{args.checkpoint} is no text classifier, and only those are written as programs; leave --onnx and "
            "--program out"
        )
    model.save_pretrained(args.folder)
    written = ["model.safetensors", "config.json", "README.md"]
    if args.onnx:
        from fna_lightning.integrations.export import export_onnx

        export_onnx(model.task, args.folder / "model.onnx")
        written.append("model.onnx")
    if args.program:
        import torch

        from fna_lightning.integrations.export import export_program

        torch.export.save(export_program(model.task), args.folder / "model.pt2")
        written.append("model.pt2")
    print(f"{args.folder}: {', '.join(written)}")
    return 0


def published(checkpoint: dict[str, Any], path: str) -> Any:
    """Return the model of a checkpoint with what its run folder says of it."""
    from fna_lightning.checkpoints.load import task_of
    from fna_lightning.integrations.hub import PublishedModel

    task = task_of(checkpoint, path)
    model = PublishedModel(model_config=checkpoint["model_config"], codec=checkpoint.get("codec"), about=about(path))
    model.task.load_state_dict(task.state_dict())
    return model.eval()


def about(checkpoint: str) -> dict[str, Any]:
    """Return name, results and deviations of the run a checkpoint lies in; empty if it lies in none."""
    from fna_lightning.config.resolve import deviations
    from fna_lightning.training.run_folder import read_results, run_folder_of

    folder = run_folder_of(checkpoint)
    if folder is None:
        return {}
    name = folder.parent.name
    return {"config": name, "results": read_results(folder), "deviations": deviations(f"{name}.yaml")}
