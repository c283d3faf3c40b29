/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a compile: a struct with the fields that the rows of options.def make, and the
 * meanings of their words. */
#ifndef UL_COMPILE_OPTIONS_H
#define UL_COMPILE_OPTIONS_H

#include "codegen/program/program.h"
#include "codegen/program/target.h"
#include "compile/options/option.h"
#include "ir/training.h"
#include "planner/model/method.h"

enum { UL_COMPILE_MAX_THREADS = 1024 };
enum { UL_COMPILE_MAX_PARTS = 65536 }; /* of a step */

enum ul_weights_place { UL_WEIGHTS_ARENA, UL_WEIGHTS_ROM, UL_WEIGHTS_FILE };
enum ul_io_place { UL_IO_ARENA, UL_IO_CALLER };
enum ul_budget_of { UL_BUDGET_PROCESS, UL_BUDGET_ARENA };
/* AMP is for programs that train, with a loss scale. */
enum ul_precision { UL_PRECISION_F32, UL_PRECISION_F16, UL_PRECISION_BF16, UL_PRECISION_AMP_F16 };
enum ul_calibration { UL_CALIBRATION_MINMAX, UL_CALIBRATION_PERCENTILE, UL_CALIBRATION_ENTROPY };
/* Words of options that may also have another value, which is 0. */
enum ul_checkpoint {
    UL_CHECKPOINT_NAMES,
    UL_CHECKPOINT_NONE,
    UL_CHECKPOINT_PRODUCTS,
    UL_CHECKPOINT_SQRT,
    UL_CHECKPOINT_BLOCKS
};
enum ul_offload_mode { UL_OFFLOAD_FILE, UL_OFFLOAD_NONE, UL_OFFLOAD_HOST };
enum ul_march { UL_MARCH_NAMED, UL_MARCH_NATIVE, UL_MARCH_NONE };
/* Where values lie in a program for a range of sizes. */
enum ul_offsets { UL_OFFSETS_LARGEST, UL_OFFSETS_SIZES };
enum ul_streams { UL_STREAMS_AUTO, UL_STREAMS_ONE, UL_STREAMS_TWO };
enum ul_cudnn_mode { UL_CUDNN_AUTO, UL_CUDNN_ON, UL_CUDNN_OFF, UL_CUDNN_FOUND };

/* Zeroed fields are the defaults; the rows of options.def describe each. */
struct ul_compile_options {
    struct ul_options base;
#define UL_OPTION(type, field, ...) type field;
#include "compile/options/options.def"
#undef UL_OPTION
    const char *runtime_dir; /* where the runtime's sources are; NULL: as installed */
};

extern const struct ul_option_table ul_compile_option_table;

/* Whether a target can use the option. */
bool ul_option_fits(const struct ul_option *row, const struct ul_target *target);
/* The meaning of a word that was given for the option; 0 where it is none of its words. */
unsigned ul_compile_word(const char *option, const char *said);
/* Whether values may be offloaded. */
bool ul_compile_offloads(const struct ul_compile_options *options);
/* Whether some size may vary within a range. */
bool ul_compile_has_ranges(const struct ul_compile_options *options);
/* Whether a size is any of a set. */
bool ul_compile_has_sets(const struct ul_compile_options *options);

#endif
