/* Hooks of the sort family. */
#ifndef UL_OPS_SORT_H
#define UL_OPS_SORT_H

#include "ir/lower.h"

#endif
