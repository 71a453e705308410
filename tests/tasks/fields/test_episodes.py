"""Episodes depend on the seed and their number alone, and each data set has the statistics it promises."""

import os

import numpy as np
import pytest
import torch

from fna_lightning.tasks import DigitsData, NoisyRecall, Photographs, PixelFields, ReviewData, RoughField, SmoothField
from fna_lightning.tasks.fields.data import FieldData, StreamBatchSampler
from fna_lightning.tasks.fields.episodes import BLOCK, EpisodeArrays, EpisodeConfig, FieldBatch
from fna_lightning.tasks.fields.recall import isotropic_noise
from fna_lightning.tasks.fields.scattered import ScatteredFile
from fna_lightning.tasks.fields.surveys import FLAT, levy_flights, reflect, standardized, survey_points
from fna_lightning.tasks.fields.terrain import EAST_START, WEST_END, Terrain, elevation_sample, read_windows

SMALL = EpisodeConfig(context=(4, 12), queries=5, eval_context=(4, 8), train_size=48, val_size=6, test_size=6)
DATA: dict[str, dict[str, object]] = {
    "Terrain": {"eval_surveys": ["levy", "even"]},
    "Photographs": {},
    "PixelFields": {"eval_surveys": ["even", "fovea"]},
    "NoisyRecall": {"noise": "stable", "tail": 1.5},
    "SmoothField": {},
    "RoughField": {},
    "ScatteredFile": {},
}
CLASSES = {
    cls.__name__: cls
    for cls in (Terrain, Photographs, PixelFields, NoisyRecall, SmoothField, RoughField, ScatteredFile)
}


def data_module(name: str, **settings: object) -> FieldData:
    return CLASSES[name](**{"episodes": SMALL, **DATA[name], **settings})  # type: ignore[arg-type]


def assert_equal(first: FieldBatch, second: FieldBatch) -> None:
    assert all(torch.equal(a, b) for a, b in zip(first[:-1], second[:-1], strict=True))
    assert first.padded == second.padded


@pytest.mark.parametrize("name", DATA)
def test_an_episode_depends_on_seed_and_number_alone(name: str) -> None:
    together = data_module(name, seed=3).split("train").__getitems__(list(range(40)))
    alone = data_module(name, seed=3).split("train")[37]
    size = int(alone.lengths)
    assert_equal(
        alone,
        together.rows([37])._replace(
            context_x=together.context_x[37:38, :size], context_y=together.context_y[37:38, :size], padded=False
        ),
    )
    other = data_module(name, seed=4).split("train")[37]
    assert not torch.equal(alone.query_x, other.query_x)


@pytest.mark.parametrize("name", DATA)
def test_splits_differ_and_evaluation_does_not_depend_on_the_seed(name: str) -> None:
    first, second = data_module(name, seed=0), data_module(name, seed=1)
    for split in ("val", "test"):
        assert_equal(first.split(split)[0], second.split(split)[0])
    assert not torch.equal(first.split("val")[0].query_y, first.split("test")[0].query_y)


@pytest.mark.parametrize("name", DATA)
def test_shapes_agree_with_the_facts(name: str) -> None:
    data = data_module(name)
    batch = next(iter(data.train_dataloader()))
    assert batch.context_x.shape[::2] == batch.query_x.shape[::2] == (data.batch_size, data.coordinate_dim)
    assert batch.query_y.shape == (data.batch_size, SMALL.queries, data.value_dim)
    assert batch.context_x.shape[:2] == batch.context_y.shape[:2]
    assert all(part.isfinite().all() for part in batch[:-1])
    sizes = [int(name.removeprefix("n").partition("_")[0]) for name in data.eval_sets]
    for batch in data.test_dataloader():
        assert batch.lengths.tolist() == [sizes[number] for number in batch.eval_set]


def test_padding_is_masked() -> None:
    stream = data_module("SmoothField").split("val")
    batch = stream.__getitems__([5, 6])
    assert batch.lengths.tolist() == [4, 8]
    mask = batch.context_mask()
    assert mask is not None
    assert mask[0, 0, 0].tolist() == [True] * 4 + [False] * 4
    assert not batch.context_y[0, 4:].any()
    assert stream[5].context_mask() is None


def test_the_seed_of_the_run_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "PL_GLOBAL_SEED", "7")
    assert_equal(data_module("Terrain").split("train")[0], data_module("Terrain", seed=7).split("train")[0])


def test_each_epoch_continues_the_stream() -> None:
    loader = data_module("SmoothField").train_dataloader()
    first = torch.cat([batch.query_x for batch in loader])
    loader.batch_sampler.set_epoch(1)  # type: ignore[union-attr]
    second = next(iter(loader)).query_x
    assert len(first) == SMALL.train_size
    assert torch.equal(
        second, data_module("SmoothField").split("train").__getitems__([48 + i for i in range(16)]).query_x
    )


def test_two_processes_train_on_the_episodes_of_one() -> None:
    def batches(batch_size: int, rank: int, world_size: int) -> list[list[int]]:
        layout = {"shuffle": False, "drop_last": True, "seed": 0, "rank": rank, "world_size": world_size}
        sampler = StreamBatchSampler(48, batch_size, **layout)  # type: ignore[arg-type]
        sampler.set_epoch(2)
        return list(sampler)

    single = batches(16, 0, 1)
    assert single[0] == list(range(96, 112))
    pairs = zip(batches(8, 0, 2), batches(8, 1, 2), strict=True)
    assert [sorted(first + second) for first, second in pairs] == single


def test_the_number_of_context_points_follows_its_law() -> None:
    rng = np.random.default_rng(0)
    uniform = [EpisodeConfig(context=(16, 768)).draw_context(rng) for _ in range(20_000)]
    octaves = [EpisodeConfig(context=(16, 768), log_uniform=True).draw_context(rng) for _ in range(20_000)]
    assert min(uniform + octaves) >= 16
    assert max(uniform + octaves) <= 768
    assert np.median(uniform) == pytest.approx(392, rel=0.1)
    assert np.median(octaves) == pytest.approx((16 * 768) ** 0.5, rel=0.1)
    stream = data_module("SmoothField").split("train")
    assert len({int(n) for n in stream.__getitems__(list(range(BLOCK))).lengths}) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"context": (8, 4)}, r"context must be the smallest and the largest number of points.*got \[8, 4\]"),
        ({"eval_context": (4, 4)}, r"eval_context must be different numbers of points, such as \[16, 64\], got"),
        ({"queries": 0}, "queries must be at least 1, got 0"),
    ],
)
def test_impossible_sizes_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EpisodeConfig(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Terrain(survey="random"), "unknown survey 'random'; choose one of levy, even"),
        (lambda: NoisyRecall(noise="cauchy"), "unknown noise 'cauchy'; choose one of gaussian, stable, student"),
        (lambda: NoisyRecall(noise="stable", tail=2.5), r"tail of stable noise must be in \(0, 2\], got 2.5"),
        (lambda: SmoothField(length=0.0), "length must be positive, got 0.0"),
        (lambda: RoughField(hurst=1.0), "hurst must lie between 0 and 1, got 1.0"),
        (lambda: PixelFields(images=ReviewData()), "images must be a data module of images.*got ReviewData"),
        (lambda: PixelFields(images=DigitsData()), "an image has 64 pixels, but an episode needs 800"),
        (lambda: Terrain(batch_size=0), "batch_size must be at least 1, got 0"),
        (lambda: Terrain(batch_size=2000), r"train_size \(1600\) must be at least batch_size \(2000\)"),
    ],
)
def test_bad_settings_are_refused(build, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_reflection_keeps_a_path_continuous_and_inside() -> None:
    path = np.linspace(-9.0, 9.0, 1000)
    folded = reflect(path)
    assert np.abs(folded).max() <= 1.0
    assert np.abs(np.diff(folded)).max() <= np.diff(path).max() + 1e-12
    np.testing.assert_allclose(reflect(np.array([-1.2, 0.3, 1.2])), [-0.8, 0.3, 0.8])


def test_a_levy_flight_has_clusters_and_gaps() -> None:
    points = levy_flights(np.random.default_rng(0), 64, 128).astype(np.float64)
    distances = np.linalg.norm(points[:, :, None] - points[:, None], axis=-1) + 9.0 * np.eye(128)
    nearest = distances.min(axis=-1)
    assert np.median(nearest) < 0.03 < 0.2 < np.quantile(nearest, 0.999)


def test_terrain_reads_the_window_exactly_at_its_samples() -> None:
    surface = np.arange(128 * 128, dtype=np.float32).reshape(128, 128)
    corners = np.array([[-1, -1], [-1, 1], [1, -1], [1, 1], [0, 0]], dtype=np.float32)[None].repeat(50, axis=0)
    values = read_windows(np.random.default_rng(0), surface, corners)
    assert {tuple(sorted(row[:4])) for row in values} == {(0.0, 127.0, 128.0 * 127, 128.0 * 128 - 1)}
    np.testing.assert_allclose(values[:, 4], surface.mean(), rtol=1e-5)
    assert len({tuple(row) for row in values}) == 8


def test_west_and_east_do_not_overlap() -> None:
    data = Terrain()
    west, east = data.surface("train"), data.surface("test")
    assert west.shape[1] == WEST_END < EAST_START == elevation_sample().shape[1] - east.shape[1]
    assert data.surface("val") is not east
    assert data.surface("val").shape == west.shape


def test_pixels_are_those_of_the_images() -> None:
    config = EpisodeConfig(context=(20, 20), queries=20, eval_context=(20,))
    data = PixelFields(images=DigitsData(), episodes=config)
    batch = data.split("val")[0]
    images = DigitsData().split("val")
    pixels = torch.from_numpy(images.pixels[images.rows][:, 0] / np.float32(127.5) - 1.0)
    x, y = torch.cat([batch.context_x, batch.query_x], 1)[0], torch.cat([batch.context_y, batch.query_y], 1)[0, :, 0]
    row, column = ((x + 1.0) * 3.5).round().long().T
    assert len(set(zip(row.tolist(), column.tolist(), strict=True))) == 40
    assert (pixels[:, row, column] == y).all(dim=1).any()


def test_the_fovea_is_denser_around_its_center() -> None:
    config = EpisodeConfig(queries=32, eval_context=(64,))
    data = PixelFields(eval_surveys=["even", "fovea"], episodes=config)
    even, fovea = (data.split("test").__getitems__(list(range(start, start + 64))) for start in (0, config.test_size))
    spread = [batch.context_x.std(dim=1).mean().item() for batch in (even, fovea)]
    assert spread[1] < 0.85 * spread[0]


def test_stable_noise_has_its_characteristic_function() -> None:
    rng = np.random.default_rng(0)
    for tail in (0.8, 1.0, 1.5, 2.0):
        noise = isotropic_noise("stable", tail, rng, (200_000, 2))
        for frequency in (0.5, 1.0):
            measured = np.cos(frequency * noise).mean()
            assert measured == pytest.approx(np.exp(-(frequency**tail)), abs=0.01)
    cauchy = isotropic_noise("student", 1.0, rng, (200_000, 2))
    assert np.cos(cauchy).mean() == pytest.approx(np.exp(-1.0), abs=0.01)


def test_a_cue_without_noise_is_its_key() -> None:
    batch = NoisyRecall(noise_scale=0.0, episodes=SMALL).split("val")[0]
    keys, cues = batch.context_x[0], batch.query_x[0]
    nearest = torch.cdist(cues, keys).argmin(dim=1)
    assert torch.equal(keys[nearest], cues)
    assert torch.equal(batch.context_y[0, nearest], batch.query_y[0])


def test_the_smooth_field_has_its_variance_and_length() -> None:
    data = SmoothField(noise=0.0)
    rng = np.random.default_rng(0)
    x = np.zeros((4000, 2, 2), dtype=np.float32)
    x[:, 1, 0] = 0.4
    values = data.values(rng, x)[..., 0]
    assert values.var() == pytest.approx(1.0, abs=0.06)
    assert (values[:, 0] * values[:, 1]).mean() == pytest.approx(np.exp(-0.5), abs=0.06)


def test_the_rough_field_has_its_hurst_exponent() -> None:
    rng = np.random.default_rng(0)
    x = np.zeros((4000, 3, 2), dtype=np.float32)
    x[:, 1, 0], x[:, 2, 0] = 0.02, 0.08
    values = RoughField(hurst=0.5).values(rng, x)[..., 0]
    near, far = ((values[:, i] - values[:, 0]).std() for i in (1, 2))
    assert np.log(far / near) / np.log(4.0) == pytest.approx(0.5, abs=0.1)


def test_predict_names_the_way_out() -> None:
    from fna_lightning.errors import UsageError

    with pytest.raises(UsageError, match=r"`predict` does not work with Terrain; use `fna-lightning map CKPT FILE`"):
        Terrain().predict_dataloader()


def test_values_are_standardized_by_the_context() -> None:
    context_y = np.array([[[1.0], [3.0]], [[5.0], [5.0]]], dtype=np.float32)
    query_y = np.array([[[4.0]], [[5.1]]], dtype=np.float32)
    x = np.zeros((2, 2, 2), dtype=np.float32)
    episodes = standardized(EpisodeArrays(x, context_y, x[:, :1], query_y))
    np.testing.assert_allclose(episodes.context_y[..., 0], [[-1.0, 1.0], [0.0, 0.0]])
    # the second context is constant, so its deviation counts as 0.01
    np.testing.assert_allclose(episodes.query_y[:, 0, 0], [2.0, 10.0], rtol=1e-4)


def test_contexts_of_the_terrain_are_not_flat() -> None:
    data = Terrain()
    rng = np.random.default_rng(0)
    values = read_windows(rng, data.surface("test"), survey_points("levy", rng, 1000, 16))
    assert values.std(axis=1).min() > FLAT


def test_a_rough_field_has_variance_1() -> None:
    values = RoughField().values(np.random.default_rng(0), np.random.default_rng(1).random((400, 50, 2), np.float32))
    assert 0.85 < np.square(values).mean() < 1.15
