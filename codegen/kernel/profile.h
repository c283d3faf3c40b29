/* SPDX-License-Identifier: Apache-2.0 */
/* How fast a device is, and what a step costs there. */
#ifndef UL_CODEGEN_KERNEL_PROFILE_H
#define UL_CODEGEN_KERNEL_PROFILE_H

#include "codegen/kernel/work.h"

/* profile.c */

/* Memory of a size: what a step moves goes at the rate of the first level that holds it all. */
struct ul_profile_level {
    uint64_t capacity_bytes; /* UINT64_MAX: memory itself, the last level */
    double rate;             /* bytes per nanosecond */
};
enum { UL_PROFILE_LEVELS = 8 };

/* What a graphics processor is made of, as far as the shape of kernels depends on it; what a
 * process takes of its memory beside the buffer, as one measured it there (0: nobody said). */
struct ul_profile_device {
    uint32_t processors;       /* multiprocessors; 0: nobody said */
    uint32_t launch_cycles;    /* of theirs, from the end of one kernel to results of the next */
    uint32_t shared_bytes;     /* that a block of threads has without asking for more */
    uint64_t max_shared_bytes; /* that it has if it asks */
    uint64_t capability;       /* its compute capability, 90 being 9.0; 0: nobody said */
    uint64_t context_bytes;    /* of CUDA's context */
    uint64_t cublaslt_bytes;   /* of a library's handle, and of its code */
    uint64_t cudnn_bytes;
};

/* Of that what there is for the target's library, as soon as a program calls it. */
struct ul_profile_library {
    uint64_t code_bytes;         /* while steps run, where it cannot be counted */
    uint64_t windows_code_bytes; /* more of that for convolutions of floats */
    uint64_t runtime_bytes;      /* heap, relocated tables, page tables */
    uint64_t load_bytes;         /* all of a process that has loaded it */
    uint64_t idle_bytes;   /* the same, but pages of files, once it is set up; not what it keeps */
    uint64_t making_bytes; /* pages of files, while a primitive is made */
};

/* What processes of programs take beside their buffers and what a library says that it keeps: bytes
 * counted on a machine, of code as far as pages of it are resident. */
struct ul_profile_process {
    uint64_t code_bytes;         /* of the runtime and of the C library */
    uint64_t last_code_bytes;    /* of these, what only the end of a process runs through */
    uint64_t threads_code_bytes; /* of OpenMP's library */
    uint64_t runtime_bytes;      /* heap, relocated tables, first page tables */
    uint64_t stack_bytes;        /* of a thread */
    struct ul_profile_library calls;
};

/* How fast a device is. Predicted nanoseconds of a step are the larger of work / rate, summed over
 * the kinds of work, and bytes / rate of their levels; plus the overhead of a step, and the time of
 * weights that come from memory itself: they are packed, or streamed once, before products can be
 * formed of them. A cache that others use as well forgets between two runs what it would hold
 * within one: there weights come from memory that are far smaller than it. */
struct ul_profile {
    const char *name;
    const char *source;          /* a data sheet, or how it was measured */
    double rates[UL_WORK_KINDS]; /* operations per nanosecond */
    double overhead_ns;
    double weights_rate;               /* bytes per nanosecond of weights that come from memory
                                          itself; 0: as the last level */
    uint64_t held_weight_bytes;        /* of a program, that caches hold from run to run; 0: what
                                          the last level before memory holds */
    uint64_t memory_bytes;             /* 0: not known */
    double host_rate;                  /* bytes per nanosecond, each way, to and from memory of the
                                          host; 0: nobody said; likewise */
    double file_rate;                  /* to and from a file */
    struct ul_profile_device device;   /* of a graphics processor, else zeros */
    struct ul_profile_process process; /* zeros: nobody counted */
    uint32_t level_count;              /* at least 1 */
    struct ul_profile_level levels[UL_PROFILE_LEVELS];
};

/* The maximum cost of a step, in nanoseconds: sums over any program stay in range. */
#define UL_PROFILE_MAX_NS ((uint64_t)1 << 39)
/* What a step reads and writes, each byte of an argument once. Weights were last used a whole run
 * ago: the memory that holds all of them is where they are. */
struct ul_traffic {
    uint64_t moved_bytes;
    uint64_t weight_bytes;     /* of those */
    uint64_t all_weight_bytes; /* of the program */
};
/* Nanoseconds, rounded up, at least 1; `rounds`: how often the step runs. The same on every
 * machine: no product is added to anything, which a compiler could fuse. */
uint64_t ul_profile_cost(const struct ul_profile *profile, const struct ul_work *work,
                         const struct ul_traffic *traffic, uint64_t rounds);
/* What kernels for a device are shaped by: the profile's own; the default device's where the
 * profile is of none, or its file does not say. */
struct ul_profile_device ul_profile_device(const struct ul_profile *profile);
/* What processes take: the profile's own, else that of UL_PROFILE_DEFAULT. */
const struct ul_profile_process *ul_profile_process(const struct ul_profile *profile);
/* Bytes per nanosecond to and from memory of the host, or a file: the profile's own, else that of
 * UL_PROFILE_DEFAULT. */
double ul_profile_transfer_rate(const struct ul_profile *profile, bool is_file);
/* A built-in profile: UL_PROFILE_DEFAULT, a processor or a graphics processor; NULL: no such. */
#define UL_PROFILE_DEFAULT "generic-core"
#define UL_PROFILE_DEFAULT_DEVICE "h100-sxm"
const struct ul_profile *ul_profile_find(const char *name);
uint32_t ul_profile_count(void);
const struct ul_profile *ul_profile_at(uint32_t index);

/* profile_json.c: the file of a profile, on one line where `compact` (codegen/README.md). */
const char *ul_work_kind_name(enum ul_work_kind kind);
void ul_profile_put_json(struct ul_text *text, const struct ul_profile *profile, bool compact);
/* UL_INVALID with the key that is missing or out of range. */
enum ul_status ul_profile_read_json(struct ul_arena *arena, const char *json, size_t length,
                                    struct ul_profile *profile, struct ul_diag *diag) UL_MUST_CHECK;

#endif
