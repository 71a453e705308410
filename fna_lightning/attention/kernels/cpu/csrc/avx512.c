#define FNA_KERNELS fna_avx512
#include "kernel.h"
