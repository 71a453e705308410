"""The model card of a published run, written from what the run recorded and from nothing else."""

from typing import Any

HEAD = """---
library_name: fna-lightning
license: apache-2.0
tags:
- fractional-attention
- pytorch
---

# {title}

{task} with {attention}, {parameters:,} parameters. Trained by
[fna-lightning](https://arxiv.org/abs/2511.10208) (fractional neural attention).

```python
from fna_lightning.integrations.hub import PublishedModel

model = PublishedModel.from_pretrained("this folder, or its name on the hub")
{use}
```
"""


def model_card(recipe: dict[str, Any], about: dict[str, Any], parameters: int) -> str:
    """Return the card as Markdown.

    Args:
        recipe: the task's configuration.
        about: "config" (name), "results" (results.json of the run), "deviations" (lines), each may be missing.
        parameters: number of parameters.
    """
    task = recipe["class_path"].rpartition(".")[2]
    use = 'print(model.classify(["a film to remember"]))' if task == "TextClassification" else "model.eval()"
    title = about.get("config") or task
    parts = [HEAD.format(title=title, task=task, attention=_attention(recipe), parameters=parameters, use=use)]
    parts.append("## Results\n\n" + _results(about.get("results") or {}))
    deviations = about.get("deviations") or []
    lines = [f"- {one}" for one in deviations] or ["None recorded for this configuration."]
    parts.append("## Deviations from the paper\n\n" + "\n".join(lines) + "\n")
    parts.append("## Training\n\n" + _training(about.get("results") or {}))
    return "\n".join(parts)


def _attention(recipe: dict[str, Any]) -> str:
    attention = (recipe.get("init_args") or {}).get("attention") or {}
    name = str(attention.get("class_path", "its attention")).rpartition(".")[2]
    settings = attention.get("init_args") or {}
    shown = ", ".join(f"{key} = {settings[key]}" for key in ("alpha", "kappa") if settings.get(key) is not None)
    return f"{name} attention ({shown})" if shown else f"{name} attention"


def _results(results: dict[str, Any]) -> str:
    rows = []
    for stage in ("fit", "test"):
        metrics = (results.get(stage) or {}).get("metrics") or {}
        rows += [f"| {name} | {value:.4f} |" for name, value in metrics.items() if not name.endswith("_step")]
    if not rows:
        return "The run recorded none.\n"
    return "\n".join(["| metric | value |", "|---|---|", *rows]) + "\n"


def _training(results: dict[str, Any]) -> str:
    run, fit = results.get("run") or {}, results.get("fit") or {}
    facts = {name: fit[name] for name in ("epochs", "steps", "seconds") if name in fit}
    facts |= {name: run[name] for name in ("seed", "devices", "precision") if name in run}
    facts |= {f"{name} version": version for name, version in (run.get("versions") or {}).items()}
    return "\n".join(f"- {name}: {value}" for name, value in facts.items()) + "\n" if facts else "Not recorded.\n"
