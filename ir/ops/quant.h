/* Hooks of the quant family. */
#ifndef UL_OPS_QUANT_H
#define UL_OPS_QUANT_H

#include "ir/lower.h"

#endif
