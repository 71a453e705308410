"""compose.yaml and the Dockerfile: services, mounts and GPUs agree. No container engine is needed."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PAGE = (ROOT / "docs/how-to/docker.md").read_text()


def test_the_gpu_service_reserves_all_gpus_and_is_only_in_its_profile() -> None:
    service = SERVICES["train-gpu"]
    assert service["profiles"] == ["gpu"]
    assert service["deploy"]["resources"]["reservations"]["devices"] == [
        {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    ]
    assert not any("profiles" in other for name, other in SERVICES.items() if name != "train-gpu")


def test_both_training_services_have_the_same_mounts() -> None:
    assert SERVICES["train"]["volumes"] == SERVICES["train-gpu"]["volumes"]
    assert SERVICES["train"]["stop_grace_period"] == SERVICES["train-gpu"]["stop_grace_period"]


@pytest.mark.parametrize("service", SERVICES)
def test_volumes_are_declared_and_lead_to_folders_of_the_image(service) -> None:
    (folders,) = re.findall(r"^VOLUME (\[.*\])$", DOCKERFILE, flags=re.MULTILINE)
    for volume in SERVICES[service]["volumes"]:
        source, target = volume.split(":")[:2]
        assert source.startswith("./") or source in COMPOSE["volumes"]
        assert f'"{target}"' in folders


def test_build_arguments_exist_in_the_dockerfile() -> None:
    assert set(SERVICES["train-gpu"]["build"]["args"]) <= set(re.findall(r"^ARG (\w+)", DOCKERFILE, flags=re.MULTILINE))


def test_the_cuda_base_is_the_same_everywhere_and_gets_a_compiler() -> None:
    base = SERVICES["train-gpu"]["build"]["args"]["BASE"]
    for text in (DOCKERFILE, PAGE):
        assert f"--build-arg BASE={base} ." in text
    final_stage = DOCKERFILE.rpartition("\nFROM ")[2]
    assert final_stage.splitlines()[1] == "ARG BASE"
    assert 'case "$BASE" in *cuda*) apt-get install' in final_stage


def test_services_on_the_page_exist() -> None:
    names = re.findall(r"^docker compose (?:--profile gpu )?(?:run --rm|up) ([\w-]+)", PAGE, flags=re.MULTILINE)
    assert names == ["board", "train-gpu"]
    assert set(names) <= set(SERVICES)


def test_the_readme_has_the_command_for_gpus() -> None:
    assert "docker run --rm --gpus all" in (ROOT / "README.md").read_text()
