#define FNA_KERNELS fna_avx2
#include "kernel.h"
