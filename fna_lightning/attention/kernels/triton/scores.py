"""Functions of one tile of pairs, for the jit functions of this package: distance, cost, weight and slope.

The logarithm of the kernel is -factor * cost, in base 2:

    power law   cost = log2(1 + z),    factor = exponent      z = r / kappa
    Gaussian    cost = z^2,            factor = log2(e)
    Student     cost = log2(1 + z^2),  factor = exponent

``HALF`` is a constexpr: whether q, k and v are float16 or bfloat16. ``BACKEND`` is "cuda", "hip" or "interpret".
Arguments per query and per key arrive in a shape that broadcasts to the tile, so that the functions do not depend on
which axis is which.
"""

import triton
import triton.language as tl
from triton.language.extra.hip.libdevice import fast_dividef

POWER, GAUSSIAN, STUDENT = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
PI = tl.constexpr(3.141592653589793)


@triton.jit
def product(a, b, PRECISION: tl.constexpr, BACKEND: tl.constexpr):
    """Return the matrix product of two tiles in float32."""
    if BACKEND == "interpret":
        # Triton's interpreter multiplies the bit patterns of bfloat16.
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def product_add(a, b, c, PRECISION: tl.constexpr, BACKEND: tl.constexpr):
    """Return c + a b in float32."""
    if BACKEND == "interpret":
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, c, input_precision=PRECISION)


@triton.jit
def to_bfloat16(x):
    """Return x rounded to bfloat16, in float32 and in bfloat16; |x| must be below 5e33.

    Triton's conversion takes six instructions on AMD. On NVIDIA it takes one on the special-function unit if the number
    is used in float32, too. Its interpreter does not round.
    """
    # The product is rounded to a multiple of 2^16 times the last bit of x. The rest is exact.
    high = tl.fma(x, -65536.0, x * 65537.0)
    bits = high.to(tl.int32, bitcast=True) >> 16
    return high, bits.to(tl.int16).to(tl.bfloat16, bitcast=True)


@triton.jit
def rounded(x, DTYPE: tl.constexpr, BACKEND: tl.constexpr):
    """Return float32 numbers rounded to the nearest ones of another dtype."""
    if BACKEND != "cuda" and DTYPE == tl.bfloat16:
        _, result = to_bfloat16(x)
        return result
    return x.to(DTYPE)


@triton.jit
def square_root(x, HALF: tl.constexpr, BACKEND: tl.constexpr):
    """Return the square root; in half precision by one instruction."""
    if HALF and BACKEND == "cuda":
        return tl.inline_asm_elementwise(
            "sqrt.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.sqrt(x)


@triton.jit
def reciprocal(x, HALF: tl.constexpr, BACKEND: tl.constexpr):
    """Return 1 / x; in half precision and on AMD by one instruction."""
    if BACKEND == "hip":
        # The division takes ten instructions there.
        return fast_dividef(tl.full(x.shape, 1.0, tl.float32), x)
    if HALF and BACKEND == "cuda":
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return 1.0 / x


@triton.jit
def power_of_2(x, BACKEND: tl.constexpr):
    """Return 2^x by one instruction."""
    if BACKEND == "cuda":
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.exp2(x)


@triton.jit
def log2_1p(x, HALF: tl.constexpr, BACKEND: tl.constexpr):
    """Return two numbers whose sum is log2(1 + x), x >= 0; in half precision only the first one counts.

    In float32 they are the integer part and a polynomial for 1 + f in [sqrt(1/2), sqrt(2)] with a relative error of
    3e-8. Their sum would lose digits that the exponent, which may be 100, multiplies, so it is taken after subtracting
    the cost of the nearest key. ``tl.log2`` would be a call with three times the instructions.
    """
    if HALF:
        y = x + 1.0
        if BACKEND == "cuda":
            y = tl.inline_asm_elementwise(
                "lg2.approx.ftz.f32 $0, $1;", "=f,f", [y], dtype=tl.float32, is_pure=True, pack=1
            )
        else:
            y = tl.log2(y)
        return y, y
    # 0x3f3504f3 is sqrt(1/2); the mask keeps sign and exponent.
    e = ((x + 1.0).to(tl.int32, bitcast=True) - 0x3F3504F3) & -8388608
    shrink = (0x3F800000 - e).to(tl.float32, bitcast=True)
    # x is not rounded to 1 + x first.
    f = x * shrink + (shrink - 1.0)
    p = f * 0.125837234 - 0.207270084
    p = p * f + 0.215715681
    p = p * f - 0.238944781
    p = p * f + 0.287916237
    p = p * f - 0.360703684
    p = p * f + 0.480910643
    p = p * f - 0.721347347
    p = p * f + 1.44269500
    return e.to(tl.float32) * 1.1920928955078125e-07, p * f


@triton.jit
def arc_per_chord(s):
    """Return asin(c / 2) / (c / 2) at s = c^2 in [0, 2], with a relative error of 2e-9."""
    p = s * 1.95884155e-06 - 8.83668801e-06
    p = p * s + 2.79659265e-05
    p = p * s - 9.78420143e-06
    p = p * s + 0.000142617237
    p = p * s + 0.000687564036
    p = p * s + 0.00468956043
    p = p * s + 0.041666504
    return p * s + 1.0


@triton.jit
def distances(
    dot,
    query_norm,
    key_norm,
    per_kappa,
    TIE: tl.constexpr,
    SPHERE: tl.constexpr,
    HALF: tl.constexpr,
    BACKEND: tl.constexpr,
):
    """Return z, z^2 and the sine of the angle (z on R^d) of a tile, from the dot products and the norms.

    ``query_norm`` and ``key_norm`` are |x|^2 / kappa^2 on R^d, in half precision times 1 - TIE; on the sphere they are
    1 / |x|. Rounding errors of tied tokens are below TIE, so their distance is exactly 0. NaN stays NaN.
    """
    if SPHERE:
        cosine = dot * query_norm * key_norm
        # The smaller one of the squared chords to the key and to its antipode: the other one has lost its digits.
        near = 2.0 - tl.abs(cosine) * 2.0
        near = tl.where(near <= TIE * 2.0, 0.0, near)
        chord = square_root(near, HALF, BACKEND)
        angle = chord * arc_per_chord(near)
        angle = tl.where(cosine < 0.0, angle * -1.0 + PI, angle)
        z = angle * per_kappa
        return z, z * z, chord * square_root(1.0 - near * 0.25, HALF, BACKEND)
    total = query_norm + key_norm
    squared = tl.fma(dot, per_kappa * per_kappa * -2.0, total)
    if HALF and BACKEND == "cuda":
        squared = tl.maximum(squared, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif HALF:
        # On AMD the maximum that keeps NaN takes three instructions.
        squared = tl.where(squared < 0.0, 0.0, squared)
    else:
        squared = tl.where(squared <= total * TIE, 0.0, squared)
    z = square_root(squared, HALF, BACKEND)
    return z, squared, z


@triton.jit
def cost_parts(z, squared, PROFILE: tl.constexpr, HALF: tl.constexpr, BACKEND: tl.constexpr):
    """Return two numbers whose sum is the cost; see ``has_low`` for whether the second one counts."""
    if PROFILE == POWER:
        high, low = log2_1p(z, HALF, BACKEND)
    elif PROFILE == STUDENT:
        high, low = log2_1p(squared, HALF, BACKEND)
    else:
        high, low = squared, squared
    return high, low


@triton.jit
def add_bias(high, low, factor, bias, HAS_LOW: tl.constexpr):
    """Return factor * cost - bias as two numbers; the factor is then 1."""
    if HAS_LOW:
        return high * factor, low * factor - bias.to(tl.float32) * LOG2_E
    high = high * factor - bias.to(tl.float32) * LOG2_E
    return high, high


@triton.jit
def sum_parts(high, low, HAS_LOW: tl.constexpr):
    """Return the cost."""
    if HAS_LOW:
        return high + low
    return high


@triton.jit
def above(high, low, reference, HAS_LOW: tl.constexpr):
    """Return the cost minus a reference, without rounding the cost first."""
    if HAS_LOW:
        return (high - reference) + low
    return high - reference


@triton.jit
def weights(high, low, reference, rest, factor, HAS_LOW: tl.constexpr, HALF: tl.constexpr, BACKEND: tl.constexpr):
    """Return 2^(factor * (reference - cost) - rest).

    In half precision it takes one multiply-add per pair, in float32 it keeps the digits of costs near the reference.
    """
    if HALF:
        # With -1.0 * factor the assembler would negate every cost.
        return power_of_2(high * (0.0 - factor) + (reference * factor - rest), BACKEND)
    return power_of_2(above(high, low, reference, HAS_LOW) * (factor * -1.0) - rest, BACKEND)


@triton.jit
def slope(z, squared, sine, PROFILE: tl.constexpr, SPHERE: tl.constexpr, HALF: tl.constexpr, BACKEND: tl.constexpr):
    """Return the derivative of log C by r, divided by r (by the sine on the sphere) and by ``slope_scale``.

    It is 0 at distance 0 and at the antipode.
    """
    if PROFILE == STUDENT:
        return reciprocal(squared + 1.0, HALF, BACKEND)
    if SPHERE:
        if PROFILE == GAUSSIAN:
            value = z * reciprocal(sine, HALF, BACKEND)
        else:
            value = reciprocal(z * sine + sine, HALF, BACKEND)
        return tl.where(sine == 0.0, 0.0, value)
    if PROFILE == GAUSSIAN:
        return squared * 0.0 + 1.0
    return tl.where(squared == 0.0, 0.0, reciprocal(z + squared, HALF, BACKEND))


@triton.jit
def slope_scale(exponent, per_kappa, PROFILE: tl.constexpr, SPHERE: tl.constexpr):
    """Return the factor of ``slope`` that is the same for all pairs of a head."""
    scale = per_kappa * -1.0
    if not SPHERE:
        scale = scale * per_kappa
    if PROFILE != GAUSSIAN:
        scale = scale * exponent
    if PROFILE != POWER:
        scale = scale * 2.0
    return scale


@triton.jit
def kappa_part(
    z, squared, slopes, PROFILE: tl.constexpr, SPHERE: tl.constexpr, HALF: tl.constexpr, BACKEND: tl.constexpr
):
    """Return the derivative of log C by kappa, divided by ``kappa_scale``: z / (1 + z), z^2 or z^2 / (1 + z^2)."""
    if PROFILE == GAUSSIAN:
        return squared
    if SPHERE:
        return z * reciprocal(z + 1.0, HALF, BACKEND)
    return squared * slopes


@triton.jit
def kappa_scale(exponent, per_kappa, PROFILE: tl.constexpr):
    """Return the factor of ``kappa_part`` that is the same for all pairs of a head."""
    scale = per_kappa * 1.0
    if PROFILE != GAUSSIAN:
        scale = scale * exponent
    if PROFILE != POWER:
        scale = scale * 2.0
    return scale


@triton.jit
def weights_again(
    dot,
    query_norm,
    key_norm,
    biases,
    reference,
    log_total,
    factor,
    per_kappa,
    PROFILE: tl.constexpr,
    SPHERE: tl.constexpr,
    BIAS: tl.constexpr,
    TIE: tl.constexpr,
    HALF: tl.constexpr,
    BACKEND: tl.constexpr,
):
    """Return the normalized weights of a tile from the statistics of its rows, its z, z^2 and sine, and its cost."""
    HAS_LOW: tl.constexpr = (PROFILE != GAUSSIAN) and not HALF
    z, squared, sine = distances(dot, query_norm, key_norm, per_kappa, TIE, SPHERE, HALF, BACKEND)
    high, low = cost_parts(z, squared, PROFILE, HALF, BACKEND)
    if BIAS:
        biased_high, biased_low = add_bias(high, low, factor, biases, HAS_LOW)
        p = weights(biased_high, biased_low, reference, log_total, 1.0, HAS_LOW, HALF, BACKEND)
    else:
        p = weights(high, low, reference, log_total, factor, HAS_LOW, HALF, BACKEND)
    return p, z, squared, sine, high, low


@triton.jit
def rounded_pull(pull, DTYPE: tl.constexpr, BACKEND: tl.constexpr):
    """Return the gradient of a tile as its products have it: in float32 and in the dtype of the tokens.

    float16 must not overflow.
    """
    if DTYPE == tl.bfloat16:
        return to_bfloat16(pull)
    if DTYPE == tl.float16:
        pull = tl.minimum(tl.maximum(pull, -65504.0), 65504.0)
    result = pull.to(DTYPE)
    return result.to(tl.float32), result


@triton.jit
def token_gradient(tokens, norm, sums, products, scale, SPHERE: tl.constexpr):
    """Return the gradient of a block of tokens x from the pulls G of their pairs with tokens y.

    On R^d it is sum G (x - y), where ``sums`` is sum G and ``products`` is sum G y. On the sphere ``products`` is
    sum G y / |y|, and the gradient has no component along x.
    """
    tokens = tokens.to(tl.float32)
    if SPHERE:
        directions = tokens * norm[:, None]
        along = tl.sum(directions * products, 1)
        return (directions * along[:, None] - products) * (norm * scale)[:, None]
    return (tokens * sums[:, None] - products) * scale
