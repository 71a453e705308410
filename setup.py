"""Builds the C kernel as a shared library; everything else is configured in pyproject.toml.

The kernel is optional: if it cannot be compiled, the installation continues without it and ``available_kernels()``
reports the reason. The same source is compiled once for each instruction set; the library chooses one at run time.
"""

import platform
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = Path("fna_lightning", "attention", "kernels", "cpu", "csrc")
COMMON = ["-O3", "-g0", "-std=gnu11", "-fPIC", "-ffp-contract=fast", "-fno-math-errno", "-fvisibility=hidden"]
# GCC warns about the ABI of vectors wider than the registers; all functions with such arguments are inlined.
COMMON += ["-Wno-psabi"]
ISA_FLAGS = {
    "avx512.c": ["-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma"],
    "avx2.c": ["-mavx2", "-mfma"],
}
X86 = platform.machine().lower() in ("x86_64", "amd64")


class BuildLibrary(build_ext):
    """Compiles each source with its own flags and links a library for ctypes, independent of the Python version."""

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
