/* Hooks of the signal family. */
#ifndef UL_OPS_SIGNAL_H
#define UL_OPS_SIGNAL_H

#include "ir/lower.h"

#endif
