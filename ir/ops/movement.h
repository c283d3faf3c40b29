/* Hooks of the movement family. */
#ifndef UL_OPS_MOVEMENT_H
#define UL_OPS_MOVEMENT_H

#include "ir/lower.h"

#endif
