"""Counting of compiled Triton kernels: a small kernel with known costs, and short pieces of machine code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fna_lightning.bench import gpu_compile, gpu_count, gpu_roofline
from fna_lightning.errors import UsageError

SASS = """
.text.kernel:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   IADD3 R2, R2, 0x1, RZ ;
.L_x_2:
        /*0020*/                   HMMA.16816.F32.BF16 R20, R140, R24.reuse, RZ ;
        /*0030*/                   MUFU.EX2 R26, R20 ;
        /*0040*/               @!P6 BRA `(.L_x_2) ;
        /*0050*/                   HMMA.16816.F32.BF16 R20, R140, R24.reuse, RZ ;
        /*0060*/               @P1 BRA `(.L_x_1) ;
.L_x_3:
        /*0070*/                   HMMA.16816.F32.BF16 R20, R140, R24.reuse, RZ ;
        /*0080*/                   MUFU.EX2 R26, R20 ;
        /*0090*/                   LDL R3, [R1] ;
        /*00a0*/                   BRA `(.L_x_3) ;
.L_x_4:
        /*00b0*/                   BRA `(.L_x_4);
"""
AMDGCN = """
kernel:
.LBB0_1:                                ; =>This Inner Loop Header: Depth=1
\ts_add_i32 s0, s0, 1
\tv_mfma_f32_32x32x8_bf16 v[0:15], v[16:17], v[18:19], v[0:15]
\tv_exp_f32_e32 v1, v2
\t;;#ASMSTART
\ts_cbranch_scc1 .LBB0_1
.Lfunc_end0:
\tv_exp_f32_e32 v1, v2
"""


def opcodes(code: list[gpu_count.Instruction]) -> list[str]:
    return [entry.opcode for entry in code]


def test_the_hot_loop_is_innermost_and_cheapest() -> None:
    code = gpu_count.sass_instructions(SASS)
    assert len(gpu_count.loops(code)) == 2
    assert opcodes(gpu_count.hot_loop(code)) == ["HMMA.16816.F32.BF16", "MUFU.EX2", "BRA"]


def test_the_loop_of_amdgcn_ends_with_the_kernel() -> None:
    loop = opcodes(gpu_count.hot_loop(gpu_count.amdgcn_instructions(AMDGCN)))
    assert loop == ["s_add_i32", "v_mfma_f32_32x32x8_bf16", "v_exp_f32_e32", "s_cbranch_scc1"]
    assert [gpu_count.is_special(opcode) for opcode in loop] == [False, False, True, False]


def test_code_without_products_has_no_hot_loop() -> None:
    with pytest.raises(ValueError, match="no loop with matrix products"):
        gpu_count.hot_loop(gpu_count.sass_instructions(SASS.replace("HMMA.16816.F32.BF16", "FADD")))


@pytest.mark.parametrize(
    ("opcode", "number"),
    [
        ("HMMA.16816.F32.BF16", 2048),
        ("HMMA.1688.F32.TF32", 1024),
        ("HGMMA.64x128x16.F32.BF16", 32768),
        ("v_mfma_f32_32x32x2_f32", 2048),
        ("v_mfma_f32_4x4x4_16b_bf16", 1024),
        ("FFMA", 0),
    ],
)
def test_products_of_tensor_core_instructions(opcode: str, number: int) -> None:
    assert gpu_count.products(opcode) == number


def test_the_roofline_divides_counts_by_rates() -> None:
    loop = gpu_count.Counter(
        {"MUFU.EX2": 8, "FFMA": 8, "LOP3.LUT": 4, "UIADD3": 2, "LDS.64": 2, "HMMA.16816.F32.BF16": 1}
    )
    target = gpu_compile.TARGETS["sm_80"]
    times = gpu_roofline.clocks(loop, 4.0, "bf16", target)
    expected = {"special": 8 / 16, "fp32": 8 / 64, "integer": 4 / 64, "issue": 25 / 128, "tensor": 2048 / 32 / 1024}
    assert times == pytest.approx({unit: clocks / 4 for unit, clocks in expected.items()})
    assert gpu_roofline.picoseconds(1.0, target) == pytest.approx(1000 / (108 * 1.41))


def test_triton_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(UsageError, match=r"needs triton .*pip install triton"):
        gpu_compile.require_triton()


COUNT = """
import torch
from fna_lightning.bench.gpu_compile import TARGETS, compiling
from fna_lightning.bench.gpu_count import count
from tests.helpers.gpu_kernel import weigh

q, out = torch.zeros(256, 64, dtype=torch.bfloat16), torch.zeros(256)
for name in ("sm_80", "sm_90", "gfx942"):
    for libdevice in (False, True):
        if name == "gfx942" and not libdevice:
            continue
        with compiling(TARGETS[name], "weigh") as builds:
            weigh[(2,)](q, q, out, 256, WIDTH=64, ROWS=128, COLS=64, LIBDEVICE=libdevice, num_warps=4)
        counts = count(builds[0])
        pairs = counts.loop_products / 64 / builds[0].threads
        assert builds[0].constants["ROWS"] == 128
        assert pairs == 128 * 64 / builds[0].threads
        assert counts.libdevice_log == (libdevice and name != "gfx942")
        assert counts.special / pairs == (1 if counts.libdevice_log else 2)
        assert (counts.instructions / pairs > 20) == counts.libdevice_log
        assert 32 < counts.registers < 256 and counts.spill_bytes == 0 and counts.shared_bytes >= 16384
print("counted")
"""


def test_a_compiled_kernel_is_counted(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    environment = {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": f"{Path(__file__).parents[2]}"}
    child = run_python(COUNT, environment)
    assert child.stdout == "counted\n", child.stderr


def run_python(code: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run code in a process without TRITON_INTERPRET."""
    inherited = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    if "PYTHONPATH" in environment and "PYTHONPATH" in inherited:
        environment = environment | {"PYTHONPATH": environment["PYTHONPATH"] + os.pathsep + inherited["PYTHONPATH"]}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=inherited | environment, capture_output=True, text=True, check=False)
