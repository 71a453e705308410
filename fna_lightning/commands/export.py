"""Export a trained model as a folder: safetensors, configuration and model card; optionally ONNX and torch.export.

`PublishedModel.from_pretrained` reads the folder, and `push_to_hub` uploads it. --onnx and --program write a text
classifier as a program that runs without this package, for any batch size and length.

Examples:
  fna-lightning export runs/reviews_fna/version_0 published
  fna-lightning export best.ckpt published --onnx --program
"""

import argparse
from pathlib import Path

from fna_lightning.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``export``."""
    parser.add_argument(
        "checkpoint", metavar="CKPT", help="a run folder, or a checkpoint written by `fna-lightning fit`"
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="folder to write; it must be new or empty")
    parser.add_argument("--onnx", action="store_true", help="also write model.onnx (needs the extra `export`)")
    parser.add_argument("--program", action="store_true", help="also write model.pt2, a torch.export program")


def run(args: argparse.Namespace) -> int:
    """Write the folder."""
    if args.folder.exists() and (not args.folder.is_dir() or any(args.folder.iterdir())):
        raise UsageError(f"{args.folder} exists and is not an empty folder; give a new one, or empty it")
    from fna_lightning.integrations.hub import PublishedModel
    from fna_lightning.tasks.text.codec import TextCodec

    model = PublishedModel.from_checkpoint(args.checkpoint)
    if (args.onnx or args.program) and not isinstance(model.codec, TextCodec):
        raise UsageError(
            f"{args.checkpoint} is not a text classifier, and only text classifiers can be exported as programs; omit "
            "--onnx and --program"
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
