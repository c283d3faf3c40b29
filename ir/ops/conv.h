/* Hooks of the conv family. */
#ifndef UL_OPS_CONV_H
#define UL_OPS_CONV_H

#include "ir/lower.h"

#endif
