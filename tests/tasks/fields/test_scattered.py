"""Own scattered data: what a file may contain, and the answers to what it may not."""

import re
from pathlib import Path

import numpy as np
import pytest

from fna_lightning.errors import UsageError
from fna_lightning.tasks import ScatteredFile
from fna_lightning.tasks.fields.scattered import LEAST_POINTS
from fna_lightning.tasks.fields.table import read_points


def write(folder: Path, rows: list[str], header: str = "lon,lat,height") -> Path:
    path = folder / "survey.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def survey(count: int) -> list[str]:
    points = np.random.default_rng(0).random((count, 2))
    return [f"{x:.6f},{y:.6f},{100 * x + y:.6f}" for x, y in points]


def refusal(path: Path | str, **columns: object) -> str:
    with pytest.raises(UsageError) as refused:
        ScatteredFile(path=str(path), **{"coordinates": ["lon", "lat"], "value": "height", **columns})  # type: ignore[arg-type]
    return str(refused.value)


def test_missing_values_are_left_out_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path, [*survey(30), "1.0,,5.0", "2.0,3.0,NaN", "2.0,3.0"])
    with caplog.at_level("INFO"):
        assert len(read_points(path, ["lon", "lat"], "height")) == 30
    assert caplog.messages == [f"{path}: 3 of 33 rows have an empty cell and are left out"]


def test_repeated_points_get_the_mean_of_their_values(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path, ["0,0,1", "0,0,3", "1,1,5", "0,0,2"])
    with caplog.at_level("INFO"):
        table = read_points(path, ["lon", "lat"], "height")
    assert table.coordinates.tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert table.values.tolist() == [2.0, 5.0]
    assert caplog.messages == [
        f"{path}: rows that repeat the coordinates of another row: 2; such a point gets the mean of its values"
    ]


def test_a_constant_value_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, [f"{i},{i * i},5" for i in range(30)])
    assert refusal(path) == (
        f"height is 5 at all 30 points of {path}, so there is nothing to predict; choose another value column"
    )


def test_a_constant_coordinate_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, [f"7,{i},{i}" for i in range(30)])
    assert refusal(path) == (
        f"lon is 7 at all 30 points of {path}, so it is not a coordinate; leave it out of the coordinates"
    )


@pytest.mark.parametrize(("count", "noun"), [(0, "0 points"), (1, "1 point"), (LEAST_POINTS - 1, "19 points")])
def test_too_few_points_are_refused(count: int, noun: str, tmp_path: Path) -> None:
    path = write(tmp_path, survey(count))
    assert refusal(path) == (
        f"{path} has {noun} with all of lon, lat, height, but at least 20 are needed; add measurements"
    )


def test_a_text_is_refused_with_its_row(tmp_path: Path) -> None:
    path = write(tmp_path, [*survey(30), "1.0,abc,5.0"])
    assert refusal(path) == (
        f"row 32 of {path} has 'abc' in the column lat, which is not a number; correct it or leave the cell empty"
    )


def test_an_infinite_value_is_refused(tmp_path: Path) -> None:
    assert "has 'inf' in the column height, which is not a number" in refusal(write(tmp_path, ["1,2,inf"]))


def test_a_missing_column_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, survey(30))
    assert refusal(path, value="depth") == (
        f"{path} has the columns lon, lat, height and no column 'depth'; choose the coordinates and the value among "
        "them"
    )


def test_a_column_used_twice_is_refused(tmp_path: Path) -> None:
    assert refusal(write(tmp_path, survey(30)), value="lat") == (
        "coordinates and value must be different columns, got lon, lat and lat"
    )


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "no.csv") == (
        f"{tmp_path / 'no.csv'} cannot be read as a CSV file (No such file or directory); give the path of a CSV file"
    )


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "survey.csv"
    path.write_bytes(b"\xff\xfe\x00\x81")
    assert re.fullmatch(rf"{re.escape(str(path))} cannot be read as a CSV file \(.*\); give the path .*", refusal(path))


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_other_delimiters_and_a_byte_order_mark(delimiter: str, tmp_path: Path) -> None:
    rows = [row.replace(",", delimiter) for row in ["lon,lat,height", *survey(5)]]
    path = tmp_path / "survey.csv"
    path.write_text("\ufeff" + "\r\n".join(rows), encoding="utf-8")
    assert len(read_points(path, ["lon", "lat"], "height")) == 5


def test_sizes_fit_the_file_and_held_out_points_are_not_in_the_context(tmp_path: Path) -> None:
    path = write(tmp_path, survey(LEAST_POINTS))
    data = ScatteredFile(path=str(path), coordinates=["lon", "lat"], value="height")
    assert data.eval_sets == ["n14"]
    contexts = {tuple(point) for batch in data.val_dataloader() for point in batch.context_x.flatten(0, 1).tolist()}
    for split in ("val", "test"):
        batch = data.split(split)[0]
        assert contexts.isdisjoint(tuple(point) for point in batch.query_x[0].tolist())
    assert next(iter(data.train_dataloader())).query_x.isfinite().all()


def test_coordinates_are_scaled_one_by_one(tmp_path: Path) -> None:
    table = read_points(write(tmp_path, ["0,1000,1", "2,3000,2", "1,2000,4"]), ["lon", "lat"], "height")
    assert sorted(table.scaled_coordinates().tolist()) == [[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]]
    assert table.scaled_values().mean() == pytest.approx(0.0, abs=1e-6)
