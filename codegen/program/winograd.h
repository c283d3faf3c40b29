/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions of 3x3 by Winograd's method. */
#ifndef UL_CODEGEN_PROGRAM_WINOGRAD_H
#define UL_CODEGEN_PROGRAM_WINOGRAD_H

#include "codegen/program/calls_internal.h"

/* The work of a convolution by Winograd's method; adds to the counts. */
void ul_winograd_count(const struct ul_call *call, struct ul_work *work);
/* Gives the calls that gain by the method a second alternative (calls->faster), or follows
 * options->conv, or the whole; `calls` are those chosen. */
void ul_winograd_choose(struct ul_arena *arena, const struct ul_graph *graph,
                        const struct ul_program_options *options, const struct ul_whole *whole,
                        struct ul_calls *calls);

#endif
