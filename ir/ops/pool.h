/* Hooks of the pool family. */
#ifndef UL_OPS_POOL_H
#define UL_OPS_POOL_H

#include "ir/lower.h"

#endif
