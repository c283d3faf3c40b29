/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of `ullage profile`: benchmarks, and the times of their steps.
 *
 * Units: nanoseconds, operations and bytes per nanosecond. */
#ifndef UL_COMPILE_MEASURE_H
#define UL_COMPILE_MEASURE_H

#include "compile/compile.h"

/* One measured step of a program. */
struct ul_measured_step {
    const char *label; /* the label of its row: what it measures */
    const struct ul_work *work;
    uint64_t moved_bytes;
    double min_ns;
    double mean_ns; /* mean of all starts */
};

struct ul_measured {
    uint32_t step_count;
    struct ul_measured_step *steps; /* in execution order */
    double run_ns;                  /* the least latency of a run without a clock between steps */
};

enum ul_measure_program {
    UL_MEASURE_RATES,  /* each step is one operator, labelled by the kind of work that limits it */
    UL_MEASURE_MEMORY, /* one operation for each element, on ever larger values, labelled "memory";
                          then products of a row with matrices that were last read one run ago */
    UL_MEASURE_HELD,   /* such a product, labelled "held", and products of small matrices */
    UL_MEASURE_OVERHEAD, /* many steps on one element, labelled "step" */
    UL_MEASURE_PROGRAMS
};

/* measure_programs.c: compiles the program through the whole pipeline, with the options --cc,
 * --cflags and --march, and runs it. UL_COMPILER where the C compiler fails. */
enum ul_status ul_profile_measure(struct ul_compile *compile, enum ul_measure_program program,
                                  struct ul_measured *measured) UL_MUST_CHECK;

/* measure_transfer.c: rates to other memory of the host and to a file in the current folder, which
 * it makes and removes. UL_IO where it cannot. */
enum ul_status ul_profile_measure_transfers(struct ul_compile *compile,
                                            struct ul_profile *profile) UL_MUST_CHECK;

/* measure_fit.c: computes rates from the measurements, from which it subtracts the clock; names and
 * source are the caller's. */
void ul_profile_fit(struct ul_arena *arena, struct ul_measured measured[UL_MEASURE_PROGRAMS],
                    struct ul_profile *profile);

#endif
