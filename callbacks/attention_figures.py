"""Figures of an attention graph: heads by layer, one head of one sequence, the spectral gap over training."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from lightning.pytorch.loggers import Logger
from matplotlib.figure import Figure
from torch import Tensor

from fna_lightning.callbacks.head_means import HEADLINE, HeadValues
from fna_lightning.errors import one_line
from fna_lightning.graph import align, diffusion_map, path_lengths, spectrum
from fna_lightning.introspection.maps import AttentionMap
from fna_lightning.plotting.graphs import (
    draw_heads,
    draw_hops,
    draw_points,
    draw_spectrum,
    draw_two_curves,
    draw_weights,
    matrix_figure,
)
from fna_lightning.plotting.images import picture_figure
from fna_lightning.plotting.style import new_figure, set_titles, styled
from fna_lightning.training.figure_writers import FigureWriter, figure_writers

log = logging.getLogger(__name__)

# largest share of the training time that figures may take
TIME_SHARE = 0.005
# measures that get a heat map of layers and heads
HEAT_MAPS = (*HEADLINE, "entropy", "alpha", "kappa")


class AttentionFigures:
    """Draws figures during training, within a share of its time.

    Args:
        measures: the measures of the callback; figures of other measures are not drawn.
    """

    def __init__(self, measures: Iterable[str]) -> None:
        self.measures = tuple(measures)
        # (step, spectral gap, metric)
        self.history: list[tuple[int, float, float]] = []
        # the latest measurement; the values of heads only if they are drawn as heat maps
        self.means: dict[str, float] = {}
        self.per_head: HeadValues = {}
        self.metric = ""
        self.seconds = 0.0
        self.broken = False
        # layer, head and (n, n) weights of the head that is drawn
        self._example: tuple[str, int, Tensor] | None = None
        # returns the tokens of the example by layer name
        self._words: Callable[[str], Sequence[str] | None] = lambda layer: None
        # an image of the probe, and its attention weights by layer
        self._image: tuple[Tensor, dict[str, Tensor]] | None = None
        self._points: Tensor | None = None
        self._drawn_step: int | None = None
        # seconds of the latest drawing; a guess before the first
        self._cost = 0.5
        self._started = time.perf_counter()

    def start(self) -> None:
        """Start measuring the training time."""
        self._started, self.seconds = time.perf_counter(), 0.0

    def set_example(
        self,
        maps: Mapping[str, AttentionMap],
        heads: Mapping[str, list[int]],
        images: Tensor | None = None,
        words: Callable[[str], Sequence[str] | None] | None = None,
    ) -> None:
        """Set what is drawn next: the first selected head of the first layer on the first sequence.

        Args:
            maps: attention maps by layer name.
            heads: selected heads by layer name.
            images: (B, C, S, S) images of the probe; the first is drawn with the mean over heads of each layer.
            words: returns the tokens of the first sequence by layer name, or None if they have no text; called when a
                figure is drawn.
        """
        if not maps:
            return
        name, layer_map = next(iter(maps.items()))
        length = layer_map.weights.size(-1) if layer_map.lengths is None else int(layer_map.lengths[0])
        head = heads[name][0]
        self._example = name, head, layer_map.weights[0, head, :length, :length].detach().cpu()
        if words is not None:
            self._words = words
        if images is not None:
            layers = {name: layer_map.weights[0].mean(dim=0).detach().cpu() for name, layer_map in maps.items()}
            self._image = images[0].detach().cpu(), layers

    def add_point(self, step: int, metric: str, value: Any) -> None:
        """Add a point to the curve of spectral gap and ``metric``, if both are known."""
        gap = self.means.get("attention/spectral_gap")
        if gap is not None and value is not None:
            self.metric = metric
            self.history.append((step, gap, float(value)))

    def draw(self, loggers: Iterable[Logger], step: int, *, last: bool = False) -> None:
        """Draw if the time allows it, and in any case if ``last``; after an error, warn once and draw no more."""
        boards = figure_writers(loggers)
        if self.broken or not boards or self._example is None or self._drawn_step == step:
            return
        elapsed = time.perf_counter() - self._started
        # leave time for this drawing and for the last one of the run
        if not last and self.seconds + 2 * self._cost > TIME_SHARE * elapsed:
            return
        started = time.perf_counter()
        try:
            self._draw(boards, step, *self._example)
        except Exception as error:
            self.broken = True
            log.debug("drawing failed", exc_info=True)
            log.warning("no more figures of the attention are drawn in this run: %s", one_line(error))
        self._drawn_step = step
        self._cost = time.perf_counter() - started
        self.seconds += self._cost

    @styled()
    def _draw(self, boards: Iterable[FigureWriter], step: int, layer: str, head: int, weights: Tensor) -> None:
        figures = {**dict(self._training_figures()), **dict(self._head_figures(layer, head, weights))}
        for board in boards:
            for name, figure in figures.items():
                board.add_figure(f"attention_figures/{name}", figure, step)
            if "mean_hops" in self.measures:
                hops = path_lengths(weights).hops
                if (hops > 0).any():
                    board.add_histogram("attention_figures/hops", hops[hops > 0], step)

    def _training_figures(self) -> Iterator[tuple[str, Figure]]:
        """Yield the name and the figure of what concerns all heads, and of the image."""
        if len(self.history) > 1:
            figure, axes = new_figure()
            steps, gaps, values = zip(*self.history, strict=True)
            draw_two_curves(axes, steps, gaps, values, ["step", "spectral gap", self.metric])
            set_titles(axes, f"Spectral gap and {self.metric}", "mean over heads and probe sequences")
            yield "gap_during_training", figure
        for name in HEAT_MAPS:
            if len(self.per_head.get(name, {})) > 1:
                figure, axes = new_figure()
                draw_heads(axes, self.per_head[name])
                set_titles(axes, name.replace("_", " ").capitalize(), "each head, mean over probe sequences")
                yield f"heads_{name}", figure
        if self._image is not None:
            image, layers = self._image
            yield "over_the_image", picture_figure(image, {"image": layers})

    def _head_figures(self, layer: str, head: int, weights: Tensor) -> Iterator[tuple[str, Figure]]:
        """Yield the name and the figure of what concerns one head on one sequence."""
        words, detail = self._words(layer), f"{layer}, head {head}"
        figure, axes = matrix_figure(words, len(weights))
        draw_weights(axes, weights, words)
        set_titles(axes, "Attention weights", detail)
        yield "attention_matrix", figure
        if "mean_hops" in self.measures:
            figure, axes = matrix_figure(words, len(weights))
            draw_hops(axes, path_lengths(weights).hops, words)
            set_titles(axes, "Hops on the cheapest path", detail)
            yield "hop_matrix", figure
        if "spectral_gap" not in self.measures:
            return
        figure, axes = new_figure()
        draw_spectrum(axes, spectrum(weights))
        set_titles(axes, "Eigenvalues of the attention matrix", detail)
        yield "spectrum", figure
        points = self._diffusion_points(weights)
        if points is not None:
            figure, axes = new_figure()
            draw_points(axes, points, words)
            set_titles(axes, "Diffusion map of the tokens", detail)
            yield "diffusion_map", figure

    def _diffusion_points(self, weights: Tensor) -> Tensor | None:
        """Return two coordinates per token, rotated onto those of the previous figure; None if there is no map."""
        if len(weights) < 3:
            return None
        try:
            points = diffusion_map(weights, symmetrise=True).coordinates
        except (ValueError, RuntimeError):
            return None
        if self._points is not None and self._points.shape == points.shape:
            points = align(points, self._points)
        self._points = points
        return points
