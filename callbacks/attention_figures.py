"""TensorBoard's figures of an attention graph: one head of one sequence, and the gap as training goes."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from lightning.pytorch.loggers import Logger, TensorBoardLogger
from torch import Tensor

from fna_lightning.graph import align, diffusion_map, path_lengths, spectrum
from fna_lightning.introspection.maps import AttentionMap
from fna_lightning.plotting.graphs import draw_hops, draw_points, draw_spectrum, draw_two_curves, new_figure
from fna_lightning.plotting.images import picture_figure

# of the time since training began
SHARE = 0.005


class AttentionFigures:
    """Draws while training goes, within a share of its time.

    Args:
        measures: what the callback measures; a figure that shows something else is left out.
    """

    def __init__(self, measures: Iterable[str]) -> None:
        self.measures = tuple(measures)
        self.history: list[tuple[int, float, float]] = []
        self.means: dict[str, float] = {}
        self.metric = ""
        self.seconds = 0.0
        self.broken = False
        self._walk: tuple[str, Tensor] | None = None
        self._picture: tuple[Tensor, dict[str, Tensor]] | None = None
        self._points: Tensor | None = None
        self._drawn: int | None = None
        # seconds of one drawing; a guess before the first
        self._cost = 0.5
        self._started = time.perf_counter()

    def start(self) -> None:
        """Start the clock of training."""
        self._started, self.seconds = time.perf_counter(), 0.0

    def remember(self, maps: Mapping[str, AttentionMap], slots: Mapping[str, list[int]]) -> None:
        """Keep the first head of the first layer for the first sequence, the one that is drawn."""
        for name, found in maps.items():
            n = found.weights.size(-1) if found.lengths is None else int(found.lengths[0])
            head = slots[name][0]
            self._walk = f"{name} head {head}", found.weights[0, head, :n, :n].detach().cpu()
            return

    def remember_picture(self, images: Tensor, maps: Mapping[str, AttentionMap]) -> None:
        """Keep the first (C, S, S) image of the probe with the mean over heads of each layer that looks at it."""
        layers = {name: found.weights[0].mean(dim=0).detach().cpu() for name, found in maps.items()}
        self._picture = images[0].detach().cpu(), layers

    def note(self, step: int, metric: str, value: Any) -> None:
        """Add a point to the curve of the gap against ``metric``, if both are known."""
        gap = self.means.get("attention/spectral_gap")
        if gap is not None and value is not None:
            self.metric = metric
            self.history.append((step, gap, float(value)))

    def draw(self, loggers: Iterable[Logger], step: int, *, last: bool = False) -> None:
        """Draw if there is time, and in any case at the end."""
        boards = [logger for logger in loggers if isinstance(logger, TensorBoardLogger)]
        if self.broken or not boards or self._walk is None or self._drawn == step:
            return
        elapsed = time.perf_counter() - self._started
        # this drawing and the last of the run are still to be paid
        if not last and self.seconds + 2 * self._cost > SHARE * elapsed:
            return
        started = time.perf_counter()
        pictures = dict(self._pictures(*self._walk))
        for logger in boards:
            for name, figure in pictures.items():
                logger.experiment.add_figure(f"attention/{name}", figure, step)
            if "mean_hops" in self.measures:
                hops = path_lengths(self._walk[1]).hops
                if (hops > 0).any():
                    logger.experiment.add_histogram("attention/hops", hops[hops > 0], step)
        self._drawn = step
        self._cost = time.perf_counter() - started
        self.seconds += self._cost

    def _pictures(self, title: str, walk: Tensor) -> Iterable[tuple[str, Any]]:
        if len(self.history) > 1:
            figure, axes = new_figure()
            steps, gaps, values = zip(*self.history, strict=True)
            draw_two_curves(axes, steps, gaps, values, ["step", "spectral gap", self.metric])
            yield "gap_as_training_goes", figure
        if self._picture is not None:
            image, layers = self._picture
            yield "over_the_image", picture_figure(image, {"image": layers})
        if "mean_hops" in self.measures:
            figure, axes = new_figure()
            draw_hops(axes, path_lengths(walk).hops)
            axes.set_title(title, fontsize="medium")
            yield "hop_matrix", figure
        if "spectral_gap" not in self.measures:
            return
        figure, axes = new_figure()
        draw_spectrum(axes, spectrum(walk))
        axes.set_title(title, fontsize="medium")
        yield "spectrum", figure
        points = self._diffusion(walk)
        if points is not None:
            figure, axes = new_figure()
            draw_points(axes, points)
            axes.set_title(title, fontsize="medium")
            yield "diffusion_map", figure

    def _diffusion(self, walk: Tensor) -> Tensor | None:
        """Return two coordinates of each token, turned onto those of the time before; None if there is no map."""
        if len(walk) < 3:
            return None
        try:
            points = diffusion_map(walk, symmetrise=True).coordinates
        except (ValueError, RuntimeError):
            return None
        if self._points is not None and self._points.shape == points.shape:
            points = align(points, self._points)
        self._points = points
        return points
