#!/usr/bin/env python
"""Runs the tests of the C kernel against a build with AddressSanitizer and UndefinedBehaviorSanitizer.

    python tests/sanitizers/run.py

It needs GCC with its sanitizers and takes a few minutes, so it is not part of the regular test suite. The kernel is
built once in a temporary folder; the installed one is not changed. For each instruction set of this CPU, the tests of
TESTS that call the kernel and the random cases of tests/sanitizers/cases.py run with this build. The first
sanitizer error stops the tests. Before that, a deliberate read past an array must be reported: without this control, a
run without reports would prove nothing.

The last line is the result; the exit code is 0 if every test passed and no sanitizer reported an error.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SOURCES = ROOT / "fna_lightning" / "attention" / "kernels" / "cpu" / "csrc"
COMPILER = os.environ.get("CC", "gcc")
# "undefined" does not include float-cast-overflow.
SANITIZERS = "address,undefined,float-cast-overflow"
FLAGS = [f"-fsanitize={SANITIZERS}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-O1", "-g"]
# Fused multiply-add as with -O3: the two-float arithmetic depends on it.
FLAGS += ["-fexpensive-optimizations"]
FLAGS += ["-std=gnu11", "-fPIC", "-ffp-contract=fast", "-fno-math-errno", "-fvisibility=hidden", "-Wno-psabi"]
# The same flags as in setup.py.
INSTRUCTIONS = {
    "avx512": ["-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma"],
    "avx2": ["-mavx2", "-mfma"],
    "baseline": [],
}
TESTS = [
    "attention/test_cpu_kernel.py",
    "attention/test_cpu_operator.py",
    "attention/test_not_finite.py",
    "attention/test_untrusted_tensors.py",
    "attention/test_learned.py",
    "attention/test_bias_and_groups.py",
    "attention/test_decoding_kernel.py",
    "nn/test_gelu.py",
    "test_search.py",
]
# These tests start their own processes or compilers, which do not use this build.
SELECTED = "not instruction_set and not compile and not out_of_bounds and not more_threads and not after_fork"
OUT_OF_BOUNDS = """
import torch
from fna_lightning.attention.kernels.cpu import library as c, op
from fna_lightning.attention.kernels.radial_op import empty_out
q, ones = torch.zeros(1, 1, 8, 8), torch.ones(1)
out, stats = empty_out(q, q)
args = op._args(q, q, q, out, stats, ones, ones)
args.m = 64
c.run("fna_forward", args)
"""


def build(folder: Path) -> Path:
    """Compile the kernel with the sanitizers and return the path of the library."""
    objects = []
    for source in sorted(SOURCES.glob("*.c")):
        target = folder / f"{source.stem}.o"
        subprocess.run([COMPILER, *FLAGS, *INSTRUCTIONS.get(source.stem, []), "-c", source, "-o", target], check=True)
        objects.append(target)
    library = folder / "_fna_cpu.so"
    libraries = ["-lm", "-lpthread", "-ldl"]
    subprocess.run([COMPILER, f"-fsanitize={SANITIZERS}", "-shared", *objects, "-o", library, *libraries], check=True)
    return library


def environment(library: Path, instructions: str) -> dict[str, str]:
    """Return the environment in which Python preloads the sanitizer and the tests load this build."""
    # Without the C++ library, AddressSanitizer cannot forward an exception that PyTorch or another library throws.
    preloaded = [
        subprocess.run(
            [COMPILER, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so")
    ]
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "LD_PRELOAD": " ".join(preloaded),
        # Python and PyTorch do not free all memory at exit.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=99:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:exitcode=99",
        "FNA_SANITIZED_KERNEL": str(library),
        "FNA_CPU_ISA": instructions,
        "PYTHONPATH": os.pathsep.join(paths),
    }


def python(arguments: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run Python in the root of the checkout and return the finished process."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=variables, capture_output=True, text=True, check=False
    )


def main() -> int:
    """Build the kernel, test each instruction set, and return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        failed, clean = [], []
        for instructions in INSTRUCTIONS:
            variables = environment(library, instructions)
            chosen = python(["-m", "sanitized_kernel"], variables)
            if chosen.returncode:
                print(f"{instructions}: this build does not load\n{chosen.stderr[-2000:]}")
                return 1
            if chosen.stdout.strip() != instructions:
                print(f"{instructions}: not supported by this CPU")
                continue
            control = python(["-c", f"import sanitized_kernel\n{OUT_OF_BOUNDS}"], variables)
            if "AddressSanitizer: heap-buffer-overflow" not in control.stderr:
                print(f"{instructions}: a deliberate read past an array was not reported\n{control.stderr[-2000:]}")
                return 1
            files = [str(ROOT / "tests" / name) for name in TESTS] + [str(HERE / "cases.py")]
            options = ["-p", "sanitized_kernel", "-q", "-x", "-s", "-k", SELECTED, "--timeout=3000"]
            tests = python(["-m", "pytest", *options, *files], variables)
            summary = (tests.stdout.strip().splitlines() or ["no output"])[-1]
            print(f"{instructions}: {summary}", flush=True)
            reports = [line for line in tests.stderr.splitlines() if "runtime error:" in line or "Sanitizer:" in line]
            if tests.returncode or reports:
                print(tests.stdout[-3000:], tests.stderr[-6000:], sep="\n")
                failed.append(instructions)
            else:
                clean.append(instructions)
    result = "clean" if clean and not failed else "FAILED"
    print(f"AddressSanitizer and UndefinedBehaviorSanitizer: {result} ({', '.join(clean + failed)})")
    return 0 if result == "clean" else 1


if __name__ == "__main__":
    sys.exit(main())
