"""Predict a map from a trained field model and a CSV file of scattered measurements.

Writes map.png, a picture of the predicted field with the measured points and the uncertainty, and map.csv, its numbers.
The columns have the names of the training data unless --coordinates and --value give others.

Examples:
  fna-lightning map runs/field_fna/version_0 survey.csv
  fna-lightning map best.ckpt new_survey.csv --coordinates lon,lat --value height --resolution 200 --out maps
"""

import argparse
from pathlib import Path

from fna_lightning.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("checkpoint", metavar="CKPT", help="run folder or checkpoint of a field model")
    parser.add_argument("file", metavar="FILE", help="CSV file with the measured points")
    parser.add_argument("--coordinates", metavar="NAMES", help="columns of the coordinates, separated by commas")
    parser.add_argument("--value", metavar="NAME", help="column of the value")
    parser.add_argument(
        "--resolution", type=int, default=100, metavar="N", help="grid points along each axis (default: 100)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path(), metavar="FOLDER", help="folder of the results (default: the current one)"
    )


def run(args: argparse.Namespace) -> int:
    """Write the map."""
    from fna_lightning.checkpoints.load import read_checkpoint, task_of
    from fna_lightning.checkpoints.locate import checkpoint_file
    from fna_lightning.tasks.fields.codec import FieldCodec
    from fna_lightning.tasks.fields.maps import predict_map
    from fna_lightning.tasks.fields.table import read_points
    from fna_lightning.tasks.fields.task import FieldRegression

    path = checkpoint_file(args.checkpoint)
    checkpoint = read_checkpoint(path)
    codec = FieldCodec.from_checkpoint(checkpoint, path)
    task = task_of(checkpoint, path)
    if not isinstance(task, FieldRegression):
        raise UsageError(f"{path} is a {type(task).__name__}; give the checkpoint of a FieldRegression")
    coordinates = codec.coordinates if args.coordinates is None else args.coordinates.split(",")
    table = read_points(args.file, coordinates, args.value or codec.values[0])
    prediction = predict_map(task, table, args.resolution)
    prediction.write(args.out)
    print(f"map.png and map.csv in {args.out.resolve()}: {prediction.mean.size} points from {len(prediction.points)}")
    return 0
