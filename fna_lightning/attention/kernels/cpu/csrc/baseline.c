#define FNA_KERNELS fna_baseline
#include "kernel.h"
