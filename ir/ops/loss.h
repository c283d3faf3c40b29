/* Hooks of the loss family. */
#ifndef UL_OPS_LOSS_H
#define UL_OPS_LOSS_H

#include "ir/lower.h"

#endif
