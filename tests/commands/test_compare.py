"""`compare`: tested translation runs in a table and as JSON."""

import json
from pathlib import Path

from fna_lightning.cli import main
from fna_lightning.tasks.translation.decoding import Decoding
from fna_lightning.tasks.translation.scores import Scored, score
from fna_lightning.training.run_folder import write_results


def finished_run(folder: Path, *, validated: bool) -> Path:
    references = ["ein Mann läuft", "zwei Hunde rennen im Schnee"]
    report = score([Scored(0, references[0], 0.0, "x"), Scored(1, "zwei Hunde", 0.0, "x")], references)
    folder.mkdir(parents=True)
    for split in ("test", "val") if validated else ("test",):
        report.write(folder, split, ["a", "b"], Decoding())
    fit = {"seconds": 90.0, "epochs": 3, "steps": 12, "metrics": {}}
    run = {"seed": 4, "threads": 1, "parameters": 7, "versions": {"torch": "9"}, "attention": ["DotProduct()"]}
    write_results(folder, {"fit": fit, "run": run})
    return folder


def test_runs_are_compared_in_one_table(tmp_path, capsys) -> None:
    fna = finished_run(tmp_path / "some_fna" / "version_0", validated=True)
    dp = finished_run(tmp_path / "some_dp" / "version_3", validated=False)
    files = ["--markdown", str(tmp_path / "t.md"), "--json", str(tmp_path / "t.json")]
    assert main(["compare", str(fna), str(dp), "--title", "Both", *files]) == 0
    text = (tmp_path / "t.md").read_text()
    assert text == capsys.readouterr().out
    rows = json.loads((tmp_path / "t.json").read_text())["runs"]
    bleu = json.loads((fna / "test.scores.json").read_text())["metrics"]["bleu"]
    assert [run["name"] for run in rows] == ["some_fna", "some_dp"]
    assert rows[0]["scores"]["test"]["metrics"]["bleu"] == bleu
    assert rows[0]["minutes"] == 1.5
    first, second = (line.split(" | ") for line in text.splitlines() if line.startswith("| some"))
    assert first[1] == second[1] == f"{bleu:.2f}"
    assert first[7] == "0.00"
    assert second[7] == "-"
    assert "tok:13a" in text
    assert "fna-lightning fit --config some_dp.yaml" in text


def test_the_command_of_a_sweep_run_includes_its_settings(tmp_path, capsys) -> None:
    run = finished_run(tmp_path / "numbers_fna_lr=1_ab12cd" / "seed_4", validated=False)
    (run / "cell.txt").write_text("--seed_everything=4\n--trainer.max_epochs=2\n# the text of the file\nmodel:\n")
    assert main(["compare", str(run)]) == 0
    output = capsys.readouterr().out
    assert "`fna-lightning fit --config numbers_fna.yaml --seed_everything=4 --trainer.max_epochs=2`" in output
    assert "| numbers_fna |" in output


def test_a_run_without_scores_is_an_error(tmp_path, capsys) -> None:
    assert main(["compare", str(tmp_path)]) == 2
    assert "run `fna-lightning test --config" in capsys.readouterr().err
