/* Hooks of the norm family. */
#ifndef UL_OPS_NORM_H
#define UL_OPS_NORM_H

#include "ir/lower.h"

#endif
