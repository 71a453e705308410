"""The notebooks of the documentation run from top to bottom in a fresh kernel, and their figures appear."""

import re
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

pytestmark = pytest.mark.e2e

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
# mime types of pictures, interactive charts and pages
FIGURES = {"image/png", "application/vnd.plotly.v1+json", "text/html"}
# notebook: number of outputs with a figure
EXPECTED = {"import": 2, "train": 2, "study": 7}
NEEDS = {"import": ("transformers", "timm"), "train": (), "study": ("plotly",)}

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_there_is_a_notebook_for_each_kind_of_user() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(EXPECTED)


@every_notebook
def test_it_runs_and_shows_its_figures(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in NEEDS[path.stem]:
        pytest.importorskip(package)
    # the kernel inherits the environment; settings of the user of Jupyter must not matter
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("FNA_RUN_DIR", "")
    folder = tmp_path / "notebook"
    folder.mkdir()
    notebook = nbformat.read(path, as_version=4)
    nbclient.execute(notebook, cwd=str(folder), timeout=300, kernel_name="python3")
    assert [cell for cell in notebook.cells if cell.cell_type == "code"][-1].execution_count
    figures = [output for output in outputs(notebook) if FIGURES & set(output.get("data", {}))]
    assert len(figures) == EXPECTED[path.stem]
    assert not [output for output in outputs(notebook) if output["output_type"] == "error"]


@every_notebook
def test_it_is_stored_without_outputs_and_without_paths_of_a_machine(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert not outputs(notebook)
    assert all(cell.get("execution_count") is None for cell in notebook.cells)
    assert not re.search(r"/(home|Users|root|tmp|work)/", path.read_text())
    assert set(notebook.metadata) == {"kernelspec", "language_info"}


@every_notebook
def test_links_to_other_notebooks_exist(path: Path) -> None:
    text = "\n".join(cell["source"] for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown")
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert link.startswith("https://") or (path.parent / link).exists()


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]
