/* Hooks of the vision family. */
#ifndef UL_OPS_VISION_H
#define UL_OPS_VISION_H

#include "ir/lower.h"

#endif
