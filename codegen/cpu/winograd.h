/* Convolutions of 3x3 by Winograd's method. */
#ifndef UL_CODEGEN_CPU_WINOGRAD_H
#define UL_CODEGEN_CPU_WINOGRAD_H

#include "codegen/program/program.h"

/* winograd.c: whether any convolution was given Winograd's method. */
bool ul_program_has_winograd(const struct ul_program *program);

#endif
