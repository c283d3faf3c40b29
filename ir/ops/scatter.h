/* Hooks of the scatter family. */
#ifndef UL_OPS_SCATTER_H
#define UL_OPS_SCATTER_H

#include "ir/lower.h"

#endif
