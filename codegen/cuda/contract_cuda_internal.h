/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the schedules of contractions on target cuda. */
#ifndef UL_CONTRACT_CUDA_INTERNAL_H
#define UL_CONTRACT_CUDA_INTERNAL_H

#include "codegen/cuda/contract_cuda.h"
#include "codegen/kernel/contract_internal.h"

enum ul_contract_cuda_form {
    UL_CONTRACT_CUDA_EACH, /* one thread for each sum */
    UL_CONTRACT_CUDA_DOT,  /* one warp for each sum */
    UL_CONTRACT_CUDA_TILE, /* tiles in shared memory, register tiles */
    UL_CONTRACT_CUDA_MMA   /* the same on tensor cores */
};

/* As in struct ul_tile and struct ul_mma of runtime/ul_contract.cuh, or struct ul_mma_bytes of
 * runtime/ul_contract_bytes.cuh; for bytes k counts words of four. */
struct ul_contract_cuda_tile {
    int m, n, k;
    int thread_m, thread_n; /* sums of a thread; on tensor cores of a warp */
    int splits;
    int stages; /* of operands, in shared memory at a time; ul_tile and ul_mma_bytes have two */
};

/* How an operand is read. */
struct ul_contract_cuda_reading {
    bool along_k; /* its neighbours in memory are along k, not along its other dimensions */
    int pack;     /* elements at once; of bytes 1 or a multiple of 4 */
};

struct ul_contract_cuda_plan {
    const struct ul_profile_device *device;
    struct ul_contraction contraction; /* with its k in the order in which sums are formed */
    struct ul_contract_plan base;      /* dimensions, and what uses them */
    /* Dimensions with the uses of all users together. */
    struct ul_contract_uses uses;
    struct ul_contract_dims m, n, k;
    int64_t batch;          /* contractions that run together, under loops around this one */
    const char *coordinate; /* C type of flat coordinates */
    enum ul_contract_cuda_form form;
    bool is_bytes; /* operands of 8 bits, of which four along k are a word; never for EACH */
    int64_t depth; /* k in elements of tiles: for bytes words */
    struct ul_contract_cuda_tile tile;
    const char *kind;     /* MMA: of elements, in runtime/cuda/ul_contract.cuh */
    const char *kinds[2]; /* of elements of a and b where they have 16 bits, else NULL */
    struct ul_contract_cuda_reading a, b;
    int dot_pack;     /* elements at once where a warp has a sum; 0: k is not contiguous */
    int dot_sums;     /* DOT: sums of a warp at a time */
    bool put_along_m; /* neighbours of what the epilogue stores are along m */
    double cycles;    /* for TILE and MMA, as predicted */
    struct ul_contract_grid grid;
};

/* contract_cuda_shape.c */

/* Chooses the schedule; memory for it comes from `arena`. The plan must stay in place. */
void ul_contract_cuda_plan_init(struct ul_contract_cuda_plan *plan, const struct ul_kernel *kernel,
                                const struct ul_contraction *contraction,
                                const struct ul_profile_device *device, struct ul_arena *arena);

/* Whether 32-bit arithmetic suffices for coordinates, bounds, and indexes without their bases, for
 * all of `uses`. */
bool ul_contract_cuda_is_short(const struct ul_contract_plan *plan,
                               const struct ul_contract_uses *uses, const struct ul_kernel *kernel);
/* How many contractions run together, under loops around this one of the kernel's. */
int64_t ul_contract_cuda_batch(const struct ul_kernel *kernel,
                               const struct ul_contraction *contraction);
/* The number of parts into which k is cut, each a contraction of its own whose sums are added in
 * order, where there are too few tiles for a device. parts is 1 where k is not cut. */
struct ul_contract_cuda_split {
    int64_t partials;
    uint32_t dim; /* a dimension of the kernel's contraction */
};
struct ul_contract_cuda_split ul_contract_cuda_split(const struct ul_contract_cuda_plan *plan,
                                                     const struct ul_kernel *kernel,
                                                     const struct ul_contraction *contraction);
/* The name of 16-bit elements in runtime/cuda/ul_contract.cuh; NULL for other types. */
const char *ul_contract_cuda_kind(enum ul_dtype dtype);
/* How operand `name` is read, at most `most` elements at once. */
struct ul_contract_cuda_reading ul_contract_cuda_read_by(const struct ul_contract_plan *plan,
                                                         char name, int max);

/* contract_cuda_text.c: functions (lambdas) that templates of the runtime call. */

/* An operand at flat coordinates: const auto <function> = [&](<first>, <second>) { ... }, whose
 * parameters are two of t_fm, t_fn and t_fk. */
struct ul_contract_cuda_reader {
    const char *function;
    char operand; /* 'a' or 'b' */
    const char *first, *second;
    const char *type;         /* of elements; uint16_t for the bits of 16-bit elements */
    int pack;                 /* elements at once, a pack of them */
    bool is_stored;           /* returns elements as they are stored */
    bool has_bases;           /* ul_contract_cuda_put_bases has declared the bases */
    const char *widened_kind; /* NULL, or the name of the 16 bits that it returns as f32 */
    bool is_place;            /* returns an ul_source, for elements of 16 bits */
};
void ul_contract_cuda_put_reader(const struct ul_contract_out *out, uint32_t indent,
                                 const struct ul_contract_cuda_reader *reader);
/* Declares the bases of one operand and of its bounds, and whether packs are aligned. */
void ul_contract_cuda_put_bases(const struct ul_contract_out *out, uint32_t indent, char operand,
                                const char *type, int pack);
/* const auto <name> = [&](t_fm, t_fn, t_sum) { the epilogue }; */
void ul_contract_cuda_put_putter(const struct ul_contract_out *out, uint32_t indent,
                                 const char *name);
/* Also prints t_put_pack(t_fm, t_fn, t_sums) for neighbours along m, or along n, from a multiple of
 * their number on. Returns that number; 1 where the epilogue does not take several and nothing is
 * printed. */
int ul_contract_cuda_put_packs(const struct ul_contract_out *out, uint32_t indent,
                               const struct ul_contract_cuda_printer *printer, bool along_m);
/* The epilogue of `sum`; it declares the variables of m and n. */
void ul_contract_cuda_put_epilogue(const struct ul_contract_out *out, uint32_t indent,
                                   const char *sum);
/* The printer of C text for one of ours. */
struct ul_contract_printer ul_contract_cuda_base(const struct ul_contract_cuda_printer *printer);
const char *ul_contract_cuda_truth(bool value);

/* contract_cuda_order.c */

/* Copies the contraction into the plan, with k in an order in which neighbours in memory are
 * neighbours of k. */
void ul_contract_cuda_order(struct ul_contract_cuda_plan *plan, const struct ul_kernel *kernel,
                            const struct ul_contraction *contraction, struct ul_arena *arena);

#endif
