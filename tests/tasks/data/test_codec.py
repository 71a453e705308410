"""Codecs store their kind, and a checkpoint with another codec is refused by name."""

from dataclasses import dataclass
from typing import Any

import pytest

from fna_lightning.errors import UsageError
from fna_lightning.tasks.data import codec
from fna_lightning.tasks.data.codec import Codec, read_codec
from fna_lightning.tasks.fields.codec import FieldCodec
from fna_lightning.tasks.image.codec import ImageCodec
from fna_lightning.tasks.text.codec import TextCodec
from fna_lightning.tasks.translation.codec import TranslationCodec

CODECS = {
    "text": TextCodec("{}", ["negative", "positive"], 64),
    "image": ImageCodec(["cat", "dog"], 3, 32),
    "translation": TranslationCodec("{}", "{}", 64),
    "field": FieldCodec(["lon", "lat"], ["height"]),
}


@pytest.mark.parametrize("kind", CODECS)
def test_the_state_stores_the_kind_and_is_read_back(kind: str) -> None:
    expected = CODECS[kind]
    state = expected.state()
    assert state["kind"] == kind
    assert read_codec(state, "best.ckpt") == expected
    assert type(expected).from_checkpoint({"codec": state}, "best.ckpt") == expected


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (None, r"best\.ckpt has no codec .*: it was not trained with `fna-lightning fit`"),
        ([1, 2], r"best\.ckpt has no codec"),
        ({"image_size": 3}, r"the codec in best\.ckpt has no kind \(known kinds: field, image, text, translation\)"),
        ({"kind": ["text"]}, r"the codec in best\.ckpt has no kind"),
        ({"kind": "audio"}, r"the codec in best\.ckpt is of the unknown kind 'audio' .*; install the plug-in"),
        (
            {"kind": "image", "class_names": [], 5: 1},
            r"has the fields class_names, 5, but the kind 'image' has channels, class_names, image_size; train",
        ),
    ],
    ids=["missing", "no mapping", "no kind", "kind of another type", "unknown kind", "other fields"],
)
def test_an_invalid_state_is_an_error_that_names_the_file(state: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_codec(state, "best.ckpt")
    with pytest.raises(UsageError, match=message):
        TextCodec.from_checkpoint({"codec": state}, "best.ckpt")


def test_the_codec_of_another_model_is_refused() -> None:
    with pytest.raises(UsageError, match=r"best\.ckpt is an image classifier, not a translator; give the checkpoint"):
        TranslationCodec.from_checkpoint({"codec": CODECS["image"].state()}, "best.ckpt")


def test_a_plug_in_registers_its_codec_by_defining_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "_CODECS", dict(codec._CODECS))

    @dataclass(frozen=True)
    class SoundCodec(Codec, kind="sound of a test", model="a sound classifier"):
        rate: int

    assert read_codec({"kind": "sound of a test", "rate": 8000}, "best.ckpt") == SoundCodec(8000)
    with pytest.raises(ValueError, match="the codec kind 'text' is already used by TextCodec; choose another"):
        type("Other", (Codec,), {}, kind="text", model="another model")
