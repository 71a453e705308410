"""Cache folders are complete or absent, rebuilt when damaged, and written by one process at a time."""

import logging
import threading
import time
from pathlib import Path

import pytest

from fna_lightning.errors import UsageError
from fna_lightning.tasks.data.cache import cache_folder, cache_root, content_key, damage, ensure


class Builder:
    """Writes two files and counts its calls."""

    def __init__(self, delay: float = 0.0) -> None:
        self.calls = 0
        self.delay = delay

    def __call__(self, draft: Path) -> None:
        self.calls += 1
        (draft / "a.txt").write_text("one")
        time.sleep(self.delay)
        (draft / "b.txt").write_text("two")


def test_a_folder_is_built_once(tmp_path) -> None:
    build = Builder()
    for _ in range(3):
        assert (ensure(tmp_path / "entry", build) / "b.txt").read_text() == "two"
    assert build.calls == 1


@pytest.mark.parametrize("name", ["a.txt", "manifest.json"])
@pytest.mark.parametrize("content", [b"", b"garb\xffage", None], ids=["truncated", "garbage", "deleted"])
def test_damage_is_detected_reported_and_repaired(tmp_path, caplog, name, content) -> None:
    build = Builder()
    folder = ensure(tmp_path / "entry", build)
    (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
    with caplog.at_level(logging.WARNING, logger="fna_lightning"):
        ensure(folder, build)
    assert build.calls == 2
    assert damage(folder) is None
    assert (folder / "a.txt").read_text() == "one"
    assert f"the cache {folder} is damaged" in caplog.text


def test_a_failed_build_leaves_no_folder(tmp_path) -> None:
    def fail(draft: Path) -> None:
        (draft / "a.txt").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure(tmp_path / "entry", fail)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_drafts_of_killed_processes_are_removed(tmp_path) -> None:
    draft = tmp_path / "entry.part.xyz"
    draft.mkdir()
    (draft / "a.txt").write_text("half")
    ensure(tmp_path / "entry", Builder())
    assert not draft.exists()


def test_one_thread_builds_and_the_others_wait(tmp_path) -> None:
    build = Builder(delay=0.2)
    threads = [threading.Thread(target=ensure, args=(tmp_path / "entry", build)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert build.calls == 1


def test_an_unwritable_cache_names_the_variable_to_set(tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match="set FNA_CACHE to another folder"):
        ensure(tmp_path / "file" / "entry", Builder())


def test_the_key_depends_on_every_setting_but_not_on_their_order() -> None:
    keys = {content_key(a=1, b=2), content_key(a=1, b=3), content_key(a="1", b=2), content_key(a=1)}
    assert len(keys) == 4
    assert content_key(a=1, b=2) == content_key(b=2, a=1)


def test_the_cache_folder_can_be_chosen(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("FNA_CACHE", str(tmp_path))
    assert cache_root() == tmp_path
    assert cache_folder("imdb", "train", a=1) == tmp_path / "imdb" / f"train-{content_key(a=1)}"
