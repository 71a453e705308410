"""Model card of a published model, generated from the results that its run recorded."""

from typing import Any

from fna_lightning.utils.escaping import markdown_text

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


def model_card(model_config: dict[str, Any], about: dict[str, Any], parameters: int) -> str:
    """Return the model card as Markdown; all names and values are escaped.

    Args:
        model_config: the task's configuration.
        about: "config" (name), "results" (results.json of the run) and "deviations" (lines); all are optional.
        parameters: number of parameters.
    """
    task = str(model_config["class_path"]).rpartition(".")[2]
    use = 'print(model.classify(["a film to remember"]))' if task == "TextClassification" else "model.eval()"
    title = markdown_text(about.get("config") or task)
    results = _mapping(about.get("results"))
    attention = _attention(model_config)
    parts = [HEAD.format(title=title, task=markdown_text(task), attention=attention, parameters=parameters, use=use)]
    parts.append("## Results\n\n" + _results(results))
    deviations = about.get("deviations")
    lines = [f"- {markdown_text(line)}" for line in deviations] if isinstance(deviations, list) else []
    lines = lines or ["None recorded for this configuration."]
    parts.append("## Deviations from the paper\n\n" + "\n".join(lines) + "\n")
    parts.append("## Training\n\n" + _training(results))
    return "\n".join(parts)


def _attention(model_config: dict[str, Any]) -> str:
    attention = _mapping(_mapping(model_config.get("init_args")).get("attention"))
    name = markdown_text(str(attention.get("class_path", "its attention")).rpartition(".")[2])
    settings = _mapping(attention.get("init_args"))
    values = ", ".join(
        f"{key} = {markdown_text(settings[key])}" for key in ("alpha", "kappa") if settings.get(key) is not None
    )
    return f"{name} attention ({values})" if values else f"{name} attention"


def _results(results: dict[str, Any]) -> str:
    rows = []
    for stage in ("fit", "test"):
        metrics = _mapping(_mapping(results.get(stage)).get("metrics"))
        rows += [
            f"| {markdown_text(name)} | {value:.4f} |"
            for name, value in metrics.items()
            if isinstance(value, int | float) and not str(name).endswith("_step")
        ]
    if not rows:
        return "The run recorded none.\n"
    return "\n".join(["| metric | value |", "|---|---|", *rows]) + "\n"


def _training(results: dict[str, Any]) -> str:
    run, fit = _mapping(results.get("run")), _mapping(results.get("fit"))
    facts: dict[str, Any] = {name: fit[name] for name in ("epochs", "steps", "seconds") if name in fit}
    facts |= {name: run[name] for name in ("seed", "devices", "precision") if name in run}
    facts |= {f"{name} version": version for name, version in _mapping(run.get("versions")).items()}
    lines = [f"- {markdown_text(name)}: {markdown_text(value)}" for name, value in facts.items()]
    return "\n".join(lines) + "\n" if lines else "Not recorded.\n"


def _mapping(value: Any) -> dict[str, Any]:
    """Return the value if it is a mapping, else an empty one; the files may be forged or damaged."""
    return value if isinstance(value, dict) else {}
