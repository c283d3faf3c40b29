/* SPDX-License-Identifier: Apache-2.0 */
/* How a contraction is run by a graphics processor: in which tiles, from its shape and its strides
 * alone, and which are better other statements. The text of it is a language's
 * (codegen/cuda/contract_cuda.h). Names of types, as of 16-bit elements, are those of the runtime's
 * templates.
 */
#ifndef UL_CONTRACT_DEVICE_H
#define UL_CONTRACT_DEVICE_H

#include "codegen/kernel/contract_internal.h"
#include "codegen/kernel/profile.h"

/* contract_device_loops.c */

/* The kernel, or a copy in which contractions that are best formed by one thread for each sum are
 * loops. */
const struct ul_kernel *ul_contract_device_open(const struct ul_kernel *kernel,
                                                const struct ul_profile_device *device,
                                                struct ul_arena *arena);

/* Threads of a processor that have 128 registers each: enough to hide each other's waiting, where
 * each has much in registers. */
#define UL_DEVICE_ROOMY_THREADS 512

/* How a contraction at the top is launched. */
struct ul_contract_grid {
    int64_t tile_count; /* of one contraction; tiles are numbered from 0 */
    uint32_t threads;   /* of a block: a multiple of 32, at most 256 */
    uint32_t shared_bytes;
    /* A processor's registers must suffice for this many blocks, and need not suffice for more,
     * lest some be spilt; 0: for as many as nvcc thinks best. */
    uint32_t min_blocks;
};
void ul_contract_device_grid(const struct ul_kernel *kernel,
                             const struct ul_contraction *contraction,
                             const struct ul_profile_device *device, struct ul_contract_grid *grid);
/* Bytes of the first operand, where a team can keep it from one run of the contraction to the next;
 * else 0. */
uint64_t ul_contract_device_held_bytes(const struct ul_kernel *kernel,
                                       const struct ul_contraction *contraction,
                                       const struct ul_profile_device *device);

enum ul_contract_device_form {
    UL_CONTRACT_DEVICE_EACH, /* one thread for each sum */
    UL_CONTRACT_DEVICE_DOT,  /* one warp for each sum */
    UL_CONTRACT_DEVICE_TILE, /* tiles in shared memory, register tiles */
    UL_CONTRACT_DEVICE_MMA   /* the same on tensor cores */
};

/* As in struct ul_tile and struct ul_mma of runtime/cuda/ul_contract.cuh, or struct ul_mma_bytes of
 * runtime/cuda/ul_contract_bytes.cuh; for bytes k counts words of four. */
struct ul_contract_device_tile {
    int m, n, k;
    int thread_m, thread_n; /* sums of a thread; on tensor cores of a warp */
    int splits;
    int stages; /* of operands, in shared memory at a time; ul_tile and ul_mma_bytes have two */
};

/* How an operand is read. */
struct ul_contract_device_reading {
    bool along_k; /* its neighbours in memory are along k, not along its other dimensions */
    int pack;     /* elements at once; of bytes 1 or a multiple of 4 */
};

struct ul_contract_device_plan {
    const struct ul_profile_device *device;
    struct ul_contraction contraction; /* with its k in the order in which sums are formed */
    struct ul_contract_plan base;      /* dimensions, and what uses them */
    /* Dimensions with the uses of all users together. */
    struct ul_contract_uses uses;
    struct ul_contract_dims m, n, k;
    int64_t batch;          /* contractions that run together, under loops around this one */
    const char *coordinate; /* C type of flat coordinates */
    enum ul_contract_device_form form;
    bool is_bytes; /* operands of 8 bits, of which four along k are a word; never for EACH */
    int64_t depth; /* k in elements of tiles: for bytes words */
    struct ul_contract_device_tile tile;
    const char *kind;     /* MMA: of elements, in runtime/cuda/ul_contract.cuh */
    const char *kinds[2]; /* of elements of a and b where they have 16 bits, else NULL */
    struct ul_contract_device_reading a, b;
    int dot_pack;     /* elements at once where a warp has a sum; 0: k is not contiguous */
    int dot_sums;     /* DOT: sums of a warp at a time */
    bool put_along_m; /* neighbours of what the epilogue stores are along m */
    double cycles;    /* for TILE and MMA, as predicted */
    struct ul_contract_grid grid;
};

/* contract_device_shape.c */

/* Chooses the schedule; memory for it comes from `arena`. The plan must stay in place. */
void ul_contract_device_plan_init(struct ul_contract_device_plan *plan,
                                  const struct ul_kernel *kernel,
                                  const struct ul_contraction *contraction,
                                  const struct ul_profile_device *device, struct ul_arena *arena);

/* Whether 32-bit arithmetic suffices for coordinates, bounds, and indexes without their bases, for
 * all of `uses`. */
bool ul_contract_device_is_short(const struct ul_contract_plan *plan,
                                 const struct ul_contract_uses *uses,
                                 const struct ul_kernel *kernel);
/* How many contractions run together, under loops around this one of the kernel's. */
int64_t ul_contract_device_batch(const struct ul_kernel *kernel,
                                 const struct ul_contraction *contraction);
/* The number of parts into which k is cut, each a contraction of its own whose sums are added in
 * order, where there are too few tiles for a device. parts is 1 where k is not cut. */
struct ul_contract_device_split {
    int64_t partials;
    uint32_t dim; /* a dimension of the kernel's contraction */
};
struct ul_contract_device_split ul_contract_device_split(const struct ul_contract_device_plan *plan,
                                                         const struct ul_kernel *kernel,
                                                         const struct ul_contraction *contraction);
/* The name of 16-bit elements in runtime/cuda/ul_contract.cuh; NULL for other types. */
const char *ul_contract_device_kind(enum ul_dtype dtype);
/* How operand `name` is read, at most `most` elements at once. */
struct ul_contract_device_reading ul_contract_device_read_by(const struct ul_contract_plan *plan,
                                                             char name, int max);

/* contract_device_order.c */

/* Copies the contraction into the plan, with k in an order in which neighbours in memory are
 * neighbours of k. */
void ul_contract_device_order(struct ul_contract_device_plan *plan, const struct ul_kernel *kernel,
                              const struct ul_contraction *contraction, struct ul_arena *arena);

#endif
