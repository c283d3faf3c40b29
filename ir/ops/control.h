/* Hooks of the control family. */
#ifndef UL_OPS_CONTROL_H
#define UL_OPS_CONTROL_H

#include "ir/lower.h"

#endif
