/* Hooks of the control family. */
#ifndef UL_OPS_CONTROL_H
#define UL_OPS_CONTROL_H

#include "ir/op.h"

/* control.c: always a failure; the types of a node with blocks come from inferring the blocks. */

ul_infer_fn ul_infer_control;

#endif
