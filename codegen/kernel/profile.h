/* SPDX-License-Identifier: Apache-2.0 */
/* How fast a device is, and what a step costs there. */
#ifndef UL_CODEGEN_KERNEL_PROFILE_H
#define UL_CODEGEN_KERNEL_PROFILE_H

#include "codegen/kernel/work.h"

/* profile.c */

/* A level of memory with its size: a step's bytes move at the rate of the first level that holds
 * them all. */
struct ul_profile_level {
    uint64_t capacity_bytes; /* UINT64_MAX: memory itself, the last level */
    double rate;             /* bytes per nanosecond */
};
enum { UL_PROFILE_LEVELS = 8 };

/* A graphics processor, as far as the shape of kernels depends on it; and the bytes that a process
 * takes of its memory besides the buffer, as measured there (0: not known). */
struct ul_profile_device {
    uint32_t processors;       /* multiprocessors; 0: not known */
    uint32_t launch_cycles;    /* of theirs, from the end of one kernel to results of the next */
    uint32_t shared_bytes;     /* that a block of threads has without asking for more */
    uint64_t max_shared_bytes; /* that it has if it asks */
    uint64_t capability;       /* its compute capability, 90 for 9.0; 0: not known */
    uint64_t context_bytes;    /* of CUDA's context */
    uint64_t cublaslt_bytes;   /* of a library's handle, and of its code */
    uint64_t cudnn_bytes;
};

/* The part of that for the target's library, as soon as a program calls it. */
struct ul_profile_library {
    uint64_t code_bytes;         /* while steps run, where it cannot be counted */
    uint64_t windows_code_bytes; /* more of that for convolutions of floats */
    uint64_t runtime_bytes;      /* heap, relocated tables, page tables */
    uint64_t load_bytes;         /* all of a process that has loaded it */
    uint64_t idle_bytes; /* the same without pages of files, once it is set up, and without what it
                            keeps */
    uint64_t making_bytes; /* pages of files, while a primitive is made */
};

/* Bytes that processes of programs take besides their buffers and what a library says that it
 * keeps, counted on a machine; code counts as far as its pages are resident. */
struct ul_profile_process {
    uint64_t code_bytes;         /* of the runtime and of the C library */
    uint64_t last_code_bytes;    /* the part that only the end of a process runs through */
    uint64_t threads_code_bytes; /* of OpenMP's library */
    uint64_t runtime_bytes;      /* heap, relocated tables, first page tables */
    uint64_t stack_bytes;        /* of a thread */
    struct ul_profile_library calls;
};

/* How fast a device is. Predicted nanoseconds of a step are the larger of work / rate, summed over
 * the kinds of work, and bytes / rate of their levels; plus the overhead of a step, and the time of
 * weights that come from memory itself: they are packed, or streamed once, before products can be
 * formed. A cache that others use too forgets between two runs what it would hold within one: so
 * even weights that are far smaller come from memory. */
struct ul_profile {
    const char *name;
    const char *source;          /* a data sheet, or how it was measured */
    double rates[UL_WORK_KINDS]; /* operations per nanosecond */
    double overhead_ns;
    double weights_rate; /* bytes per nanosecond of weights that come from memory itself; 0: the
                            rate of the last level */
    uint64_t held_weight_bytes; /* of a program, that caches hold from run to run; 0: the size of
                                   the last level before memory */
    uint64_t memory_bytes;      /* 0: not known */
    double host_rate; /* bytes per nanosecond, each way, to and from memory of the host; 0: not
                         known; likewise */
    double file_rate; /* to and from a file */
    struct ul_profile_device device;   /* of a graphics processor, else zeros */
    struct ul_profile_process process; /* zeros: not counted */
    uint32_t level_count;              /* at least 1 */
    struct ul_profile_level levels[UL_PROFILE_LEVELS];
};

/* The maximum cost of a step, in nanoseconds: sums over any program stay in range. */
#define UL_PROFILE_MAX_NS ((uint64_t)1 << 39)
/* The bytes that a step reads and writes, each byte of an argument once. Weights were last used one
 * run ago: they are in the memory that holds all of them. */
struct ul_traffic {
    uint64_t moved_bytes;
    uint64_t weight_bytes;     /* the part for weights */
    uint64_t all_weight_bytes; /* of the program */
};
/* Nanoseconds, rounded up, at least 1; `rounds`: how often the step runs. The result is the same on
 * every machine: no product is added to anything, which a compiler could fuse. */
uint64_t ul_profile_cost(const struct ul_profile *profile, const struct ul_work *work,
                         const struct ul_traffic *traffic, uint64_t rounds);
/* The device for which kernels are shaped: the profile's own; the default device's where the
 * profile has none, or its file lacks it. */
struct ul_profile_device ul_profile_device(const struct ul_profile *profile);
/* The bytes of processes: the profile's own, else those of UL_PROFILE_DEFAULT. */
const struct ul_profile_process *ul_profile_process(const struct ul_profile *profile);
/* Bytes per nanosecond to and from memory of the host, or a file: the profile's own, else that of
 * UL_PROFILE_DEFAULT. */
double ul_profile_transfer_rate(const struct ul_profile *profile, bool is_file);
/* A built-in profile: UL_PROFILE_DEFAULT, a processor or a graphics processor; NULL: there is none
 * of that name. */
#define UL_PROFILE_DEFAULT "generic-core"
#define UL_PROFILE_DEFAULT_DEVICE "h100-sxm"
const struct ul_profile *ul_profile_find(const char *name);
uint32_t ul_profile_count(void);
const struct ul_profile *ul_profile_at(uint32_t index);

/* profile_json.c: the file of a profile, on one line if `compact` (codegen/README.md). */
const char *ul_work_kind_name(enum ul_work_kind kind);
void ul_profile_put_json(struct ul_text *text, const struct ul_profile *profile, bool compact);
/* UL_INVALID with the key that is missing or out of range. */
enum ul_status ul_profile_read_json(struct ul_arena *arena, const char *json, size_t length,
                                    struct ul_profile *profile, struct ul_diag *diag) UL_MUST_CHECK;

#endif
