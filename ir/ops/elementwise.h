/* Hooks of the elementwise family. */
#ifndef UL_OPS_ELEMENTWISE_H
#define UL_OPS_ELEMENTWISE_H

#include "ir/lower.h"

#endif
