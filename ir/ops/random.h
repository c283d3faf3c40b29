/* Hooks of the random family. */
#ifndef UL_OPS_RANDOM_H
#define UL_OPS_RANDOM_H

#include "ir/lower.h"

#endif
