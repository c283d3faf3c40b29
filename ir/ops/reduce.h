/* Hooks of the reduce family. */
#ifndef UL_OPS_REDUCE_H
#define UL_OPS_REDUCE_H

#include "ir/lower.h"

#endif
