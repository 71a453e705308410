"""Builds the C kernel as a plain shared library; everything else is in pyproject.toml.

It is optional: where it cannot be compiled, the installation goes on without it and ``available_kernels()`` says so.
One source is compiled once for each instruction set; the library chooses among them when it runs.
"""

import platform
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = Path("fna_lightning", "attention", "kernels", "cpu", "csrc")
COMMON = ["-O3", "-g0", "-std=gnu11", "-fPIC", "-ffp-contract=fast", "-fno-math-errno", "-fvisibility=hidden"]
# vectors wider than the baseline's registers never leave a function that is not inlined
COMMON += ["-Wno-psabi"]
ISA_FLAGS = {
    "avx512.c": ["-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma"],
    "avx2.c": ["-mavx2", "-mfma"],
}
X86 = platform.machine().lower() in ("x86_64", "amd64")


class BuildLibrary(build_ext):
    """Compiles each source with its own flags and links a library that ctypes loads, whatever the Python version."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split("."))) + ".so"

    def build_extension(self, ext: Extension) -> None:
        objects: list[str] = []
        for source in ext.sources:
            flags = COMMON + ISA_FLAGS.get(Path(source).name, [])
            objects += self.compiler.compile([source], output_dir=self.build_temp, extra_postargs=flags)
        self.compiler.link_shared_object(
            objects, self.get_ext_fullpath(ext.name), libraries=ext.libraries, build_temp=self.build_temp
        )


setup(
    ext_modules=[
        Extension(
            "fna_lightning.attention.kernels.cpu._fna_cpu",
            sources=sorted(str(path) for path in SOURCES.glob("*.c") if X86 or path.name not in ISA_FLAGS),
            depends=sorted(str(path) for path in SOURCES.glob("*.h")),
            libraries=["m", "pthread", "dl"],
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildLibrary},
)
