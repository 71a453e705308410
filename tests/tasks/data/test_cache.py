"""The cache: whole or absent, healed when damaged, written by one process at a time."""

import logging
import threading
import time
from pathlib import Path

import pytest

from fna_lightning.errors import UsageError
from fna_lightning.tasks.data.cache import cache_root, content_key, damage, ensure


class Builder:
    """Writes two files, and counts how often."""

    def __init__(self, delay: float = 0.0) -> None:
        self.calls = 0
        self.delay = delay

    def __call__(self, draft: Path) -> None:
        self.calls += 1
        (draft / "a.txt").write_text("one")
        time.sleep(self.delay)
        (draft / "b.txt").write_text("two")


def test_it_is_built_once(tmp_path) -> None:
    build = Builder()
    for _ in range(3):
        assert (ensure(tmp_path / "entry", build) / "b.txt").read_text() == "two"
    assert build.calls == 1


@pytest.mark.parametrize("name", ["a.txt", "manifest.json"])
@pytest.mark.parametrize("content", [b"", b"garb\xffage", None], ids=["cut off", "garbage", "gone"])
def test_damage_is_noticed_said_and_healed(tmp_path, caplog, name, content) -> None:
    build = Builder()
    folder = ensure(tmp_path / "entry", build)
    (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
    with caplog.at_level(logging.WARNING, logger="fna_lightning"):
        ensure(folder, build)
    assert build.calls == 2
    assert damage(folder) is None
    assert (folder / "a.txt").read_text() == "one"
    assert f"the cache {folder} is damaged" in caplog.text


def test_a_build_that_fails_leaves_nothing(tmp_path) -> None:
    def fail(draft: Path) -> None:
        (draft / "a.txt").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure(tmp_path / "entry", fail)
    assert [one.name for one in tmp_path.iterdir() if one.is_dir()] == []


def test_what_a_killed_process_left_is_swept_away(tmp_path) -> None:
    left = tmp_path / "entry.part.xyz"
    left.mkdir()
    (left / "a.txt").write_text("half")
    ensure(tmp_path / "entry", Builder())
    assert not left.exists()


def test_one_of_many_builds_and_the_others_wait(tmp_path) -> None:
    build = Builder(delay=0.2)
    threads = [threading.Thread(target=ensure, args=(tmp_path / "entry", build)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert build.calls == 1


def test_a_cache_that_cannot_be_written_says_what_to_set(tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match="set FNA_CACHE to another folder"):
        ensure(tmp_path / "file" / "entry", Builder())


def test_any_change_of_a_setting_changes_the_key() -> None:
    keys = {content_key(a=1, b=2), content_key(a=1, b=3), content_key(a="1", b=2), content_key(a=1)}
    assert len(keys) == 4
    assert content_key(a=1, b=2) == content_key(b=2, a=1)


def test_the_cache_can_be_put_anywhere(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("FNA_CACHE", str(tmp_path))
    assert cache_root() == tmp_path
