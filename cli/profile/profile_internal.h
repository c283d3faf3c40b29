/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `ullage profile` share: benchmarks, and the times of their steps.
 *
 * Units: nanoseconds, operations and bytes per nanosecond.
 */
#ifndef UL_CLI_PROFILE_INTERNAL_H
#define UL_CLI_PROFILE_INTERNAL_H

#include "cli/cli.h"

/* One step of a program that was measured. */
struct ul_measured_step {
    const char *label; /* of its row: what it is for */
    const struct ul_work *work;
    uint64_t moved_bytes;
    double min_ns;
    double mean_ns; /* of all starts */
};

struct ul_measured {
    uint32_t step_count;
    struct ul_measured_step *steps; /* in execution order */
    double run_ns;                  /* the minimum latency of a run without a clock between steps */
};

enum ul_measure_program {
    UL_MEASURE_RATES,    /* one operator a step, labelled by the kind of work that limits it */
    UL_MEASURE_MEMORY,   /* one operation an element on ever larger values, labelled "memory";
                             then products of a row with matrices that were last read a run ago */
    UL_MEASURE_HELD,     /* such a product, labelled "held", and products of small matrices */
    UL_MEASURE_OVERHEAD, /* many steps on one element, labelled "step" */
    UL_MEASURE_PROGRAMS
};

/* profile_measure.c: compiles the program through the whole pipeline, as the options --cc, --cflags
 * and --march say, and runs it. UL_COMPILER where the C compiler fails. */
enum ul_status ul_profile_measure(struct ul_cli_job *job, enum ul_measure_program program,
                                  struct ul_measured *measured) UL_MUST_CHECK;

/* profile_transfer.c: rates to other memory of the host and to a file in the current folder, which
 * it makes and removes. UL_IO where the folder takes none. */
enum ul_status ul_profile_measure_transfers(struct ul_cli_job *job,
                                            struct ul_profile *profile) UL_MUST_CHECK;

/* profile_fit.c: rates from what was measured, off which it takes the clock; names and source are
 * the caller's. */
void ul_profile_fit(struct ul_arena *arena, struct ul_measured measured[UL_MEASURE_PROGRAMS],
                    struct ul_profile *profile);

#endif
