"""Compile Triton kernels for a GPU that this machine does not have.

``compiling`` replaces Triton's driver by one that only names a target. A launch inside it compiles the kernel exactly
as a real launch would (same arguments, same specialization, same options) and records the result instead of running
it. So what is counted is what would run. Other kernels are skipped.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fna_lightning.errors import UsageError


@dataclass(frozen=True)
class Target:
    """A GPU architecture as Triton names it."""

    name: str
    backend: str
    arch: int | str
    warp_size: int

    @property
    def is_nvidia(self) -> bool:
        return self.backend == "cuda"

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability; (9, 4) for gfx942, as PyTorch reports it on ROCm."""
        return divmod(self.arch, 10) if isinstance(self.arch, int) else (int(self.arch[3]), int(self.arch[4]))


TARGETS = {
    target.name: target
    for target in (
        Target("sm_80", "cuda", 80, 32),
        Target("sm_90", "cuda", 90, 32),
        Target("gfx942", "hip", "gfx942", 64),
    )
}


@dataclass(frozen=True)
class Build:
    """A compiled kernel: its name, its assembly by stage and the options it was compiled with."""

    kernel: str
    target: Target
    asm: dict[str, Any]
    shared_bytes: int
    warps: int
    stages: int
    constants: dict[str, Any]

    @property
    def threads(self) -> int:
        return self.warps * self.target.warp_size


def require_triton() -> Any:
    """Return the triton package, or raise an error that says how to install it."""
    try:
        import triton
        from triton.runtime.jit import JITFunction  # noqa: F401
    except ImportError as error:
        raise UsageError(f"this benchmark needs triton ({error}); install it with: pip install triton") from error
    if triton.knobs.runtime.interpret:
        raise UsageError("TRITON_INTERPRET=1 turns the compiler off; unset it for this benchmark")
    return triton


class _Driver:
    """Stands in for Triton's driver: names the target and refuses everything else."""

    def __init__(self, target: Target) -> None:
        from triton.backends.compiler import GPUTarget

        self.target = target
        self.gpu_target = GPUTarget(target.backend, target.arch, target.warp_size)

    def get_current_device(self) -> str:
        # Triton caches compiled kernels by device, so each target needs a device of its own.
        return self.target.name

    def get_current_stream(self, device: str) -> int:
        return 0

    def get_current_target(self) -> Any:
        return self.gpu_target


@contextmanager
def compiling(target: Target, *kernels: str) -> Iterator[list[Build]]:
    """Compile the launched kernels with these names for ``target`` in this block; yields the list of builds."""
    triton = require_triton()
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction

    builds: list[Build] = []
    run, active = JITFunction.run, driver._active

    def record(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if self.__name__ not in kernels:
            return None
        kernel = run(self, *args, grid=grid, warmup=True, **kwargs)
        names = self.arg_names
        constants = {names[path[0]]: value for path, value in kernel.src.constants.items() if len(path) == 1}
        meta = kernel.metadata
        builds.append(
            Build(self.__name__, target, dict(kernel.asm), meta.shared, meta.num_warps, meta.num_stages, constants)
        )
        return kernel

    JITFunction.run = record
    driver.set_active(_Driver(target))
    try:
        yield builds
    except triton.CompilationError as error:
        raise UsageError(f"a kernel does not compile for {target.name}: {error}") from error
    finally:
        JITFunction.run = run
        driver._active = active
