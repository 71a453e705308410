/* The whole kernel for one instruction set; each of avx512.c, avx2.c and baseline.c compiles it with its own flags. */
#include "backward.h"
#include "elementwise.h"
#include "forward.h"

const fna_kernels FNA_KERNELS = {forward, backward, dropout};
