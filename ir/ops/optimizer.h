/* Hooks of the optimizer family. */
#ifndef UL_OPS_OPTIMIZER_H
#define UL_OPS_OPTIMIZER_H

#include "ir/lower.h"

#endif
