/* The kernel for one instruction set; avx512.c, avx2.c and baseline.c each compile it with their own flags. */
#include "backward.h"
#include "decode.h"
#include "elementwise.h"
#include "forward.h"
#include "gelu.h"
#include "scores.h"

const fna_kernels FNA_KERNELS = {forward, backward, dropout, gelu, decode, scores, largest};
