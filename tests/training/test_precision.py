"""Mixed precision: every shipped family trains, and its gradients equal those of float32 up to rounding."""

import math

import lightning as L
import pytest
import torch
from lightning.pytorch.plugins.precision import MixedPrecision
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn import functional as F

from fna_lightning.attention import Fractional, MultiheadAttention, OrthogonalProjection
from fna_lightning.cli import main
from fna_lightning.config.instantiate import from_config
from fna_lightning.config.resolve import shipped_configs
from fna_lightning.nn import linear_cross_entropy as linear_cross_entropy
from fna_lightning.task import Task

from helpers.tiny_translation import train_tiny_translation

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("shipped_environment")]

CONFIGS = list(shipped_configs())
# one configuration per family
FITTED = [config for config in CONFIGS if config.endswith("_fna.yaml")]
SMALL = {
    "multi30k": ["model.network.encoder.dim=64", "model.network.encoder.depth=2", "model.network.encoder.ffn_dim=64"],
    "imdb": ["model.encoder.dim=64", "model.encoder.depth=2"],
    "imdb_sphere": ["model.encoder.dim=64", "model.encoder.depth=2"],
    "images": ["data.path=photos"],
    "parallel": ["data.path=english.txt,german.txt"],
    "text": ["data.path=mine.csv", "data.text_column=review", "data.label_column=topic"],
    "numbers": ["data.train_size=200", "data.eval_size=20"],
    "reviews": ["data.train_size=64", "data.eval_size=32", "data.longest=40"],
}
LEARNED = ["reviews_fna.yaml", "digits_fna.yaml", "numbers_fna.yaml", "imdb_sphere_fna.yaml"]
# largest |g - g32| / |g32| over all parameters; bfloat16 rounds every product to 8 bits, float16 to 11
TOLERANCE = {torch.bfloat16: 0.1, torch.float16: 0.03}
# relative to the float32 loss
LOSS_TOLERANCE = {torch.bfloat16: 5e-3, torch.float16: 1e-3}
# scaling the loss keeps small float16 gradients from underflow, as torch.amp.GradScaler does
SCALE = 1024.0


def small(config: str) -> list[str]:
    return SMALL.get(config.removesuffix(".yaml").rpartition("_")[0], [])


def loss_and_gradient(task: Task, batch: object, dtype: torch.dtype | None) -> tuple[float, Tensor]:
    """Return the loss of a batch and all gradients in one vector, with autocast to ``dtype`` or in float32."""
    task.zero_grad()
    # images are augmented at random
    torch.manual_seed(0)
    with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
        loss = task.loss(batch, "train")
    assert loss.dtype == torch.float32
    (SCALE * loss).backward()
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in task.parameters()]
    assert all(grad.dtype == torch.float32 for grad in grads)
    return loss.item(), torch.cat([grad.double().flatten() for grad in grads]) / SCALE


def assert_close_to_float32(config: str, overrides: list[str]) -> None:
    experiment = from_config(config, overrides)
    experiment.data.prepare_data()
    experiment.data.setup("fit")
    batch = next(iter(experiment.data.train_dataloader()))
    # without dropout, whose pattern depends on the dtype
    task = experiment.task.eval()
    loss, gradient = loss_and_gradient(task, batch, None)
    for dtype, tolerance in TOLERANCE.items():
        rounded_loss, rounded = loss_and_gradient(task, batch, dtype)
        assert abs(rounded_loss - loss) <= LOSS_TOLERANCE[dtype] * abs(loss), dtype
        error = (rounded - gradient).norm() / gradient.norm()
        # an error of 0 would mean that nothing was rounded
        assert 0.0 < error <= tolerance, f"{dtype}: the gradient differs by {error:.3f}"


@pytest.mark.parametrize("config", CONFIGS)
def test_gradients_equal_those_of_float32(config) -> None:
    assert_close_to_float32(config, small(config))


@pytest.mark.parametrize("config", LEARNED)
def test_gradients_with_learned_alpha_and_kappa(config) -> None:
    assert_close_to_float32(config, [*small(config), "model.attention.learn=[alpha,kappa]"])


@pytest.mark.parametrize("kernel", ["reference", "chunked"])
@pytest.mark.parametrize("config", ["digits_fna.yaml", "digits_dp.yaml", "numbers_fna.yaml"])
def test_gradients_of_the_python_kernels(config, kernel) -> None:
    assert_close_to_float32(config, [*small(config), f"model.attention.kernel={kernel}"])


@pytest.mark.parametrize("kernel", ["cpu", "sdpa", "chunked", "reference"])
def test_one_head_without_a_query_projection(kernel) -> None:
    """Queries stay float32, while linear layers round keys and values to bfloat16."""
    torch.manual_seed(0)
    layer = MultiheadAttention(16, 1, Fractional(2.0, kernel=kernel), OrthogonalProjection)
    x = torch.randn(2, 9, 16)
    want = layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        got = layer(x)
    assert isinstance(layer.projection.query, nn.Identity)
    assert (got.float() - want).abs().max() <= 3e-2 * want.abs().max()
    got.float().square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("config", FITTED)
def test_it_trains_in_bf16_mixed(config) -> None:
    overrides = [f"--{override}" for override in small(config)]
    precision = ["--trainer.precision=bf16-mixed", "--trainer.fast_dev_run=2", "--trainer.accelerator=cpu"]
    assert main(["fit", "--config", config, *overrides, *precision]) == 0


@pytest.mark.parametrize("clip", [0.0, 1e-3])
@pytest.mark.parametrize("config", ["digits_fna.yaml", "reviews_fna.yaml", "numbers_fna.yaml"])
def test_it_trains_in_float16_with_a_scaled_loss(config, clip) -> None:
    """The 16-mixed of GPUs; on a CPU, Lightning uses it only if the plugin is passed explicitly."""
    experiment = from_config(config, small(config))
    norms_and_losses: list[tuple[float, float]] = []

    class Recorder(L.Callback):
        def on_before_zero_grad(self, trainer, task, optimizer) -> None:
            grads = [p.grad for p in task.parameters() if p.grad is not None]
            if grads:
                total = torch.stack([grad.norm() for grad in grads]).norm().item()
                norms_and_losses.append((total, float(trainer.callback_metrics["train/loss_step"])))

    plugin = MixedPrecision("16-mixed", "cpu", GradScaler("cpu", init_scale=SCALE))
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = L.Trainer(
        accelerator="cpu", plugins=[plugin], max_steps=3, gradient_clip_val=clip, callbacks=[Recorder()], **quiet
    )
    before = torch.cat([p.detach().flatten() for p in experiment.task.parameters()])
    trainer.fit(experiment.task, experiment.data)
    after = torch.cat([p.detach().flatten() for p in experiment.task.parameters()])
    assert norms_and_losses
    assert all(math.isfinite(norm) and math.isfinite(loss) for norm, loss in norms_and_losses)
    assert after.isfinite().all()
    assert not torch.equal(before, after)
    if clip:
        assert all(norm <= clip * (1.0 + 1e-4) for norm, _ in norms_and_losses)


def test_16_mixed_on_the_cpu_is_bf16_mixed() -> None:
    # Lightning has no loss scaling on the CPU, and warns about it
    overrides = ["--trainer.precision=16-mixed", "--trainer.fast_dev_run=2", "--trainer.accelerator=cpu"]
    with pytest.warns(UserWarning, match="Using `precision='bf16-mixed'` instead"):
        assert main(["fit", "--config", "digits_fna.yaml", *overrides]) == 0


def test_a_translator_is_trained_and_tested_in_bf16_mixed(tmp_path) -> None:
    checkpoint = train_tiny_translation(tmp_path, "trainer.precision=bf16-mixed")
    run = checkpoint.parent.parent
    assert main(["test", "--config", str(run / "config.yaml"), "--ckpt_path", str(checkpoint)]) == 0


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_the_loss_of_a_large_vocabulary(dtype, smoothing) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(600, 16, generator=generator).requires_grad_()
    w = torch.randn(2000, 16, generator=generator).requires_grad_()
    y = torch.randint(0, 2000, (600,), generator=generator)
    want = F.cross_entropy(x.double() @ w.double().mT, y, label_smoothing=smoothing)
    for features in (x, x.to(dtype)):
        with torch.autocast("cpu", dtype):
            loss, plain, _ = linear_cross_entropy(features, w, y, smoothing)
        assert loss.dtype == plain.dtype == torch.float32
        assert abs(loss.item() - want.item()) <= 1e-3 * want.item()
        got = torch.autograd.grad(SCALE * loss, (x, w))
        for grad, exact in zip(got, torch.autograd.grad(want, (x, w), retain_graph=True), strict=True):
            assert grad.dtype == torch.float32
            assert (grad.double() / SCALE - exact).norm() <= 2e-2 * exact.norm()
