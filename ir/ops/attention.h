/* Hooks of the attention family. */
#ifndef UL_OPS_ATTENTION_H
#define UL_OPS_ATTENTION_H

#include "ir/lower.h"

#endif
