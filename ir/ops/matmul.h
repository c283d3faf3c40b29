/* Hooks of the matmul family. */
#ifndef UL_OPS_MATMUL_H
#define UL_OPS_MATMUL_H

#include "ir/lower.h"

#endif
