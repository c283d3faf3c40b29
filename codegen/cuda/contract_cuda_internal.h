/* SPDX-License-Identifier: Apache-2.0 */
/* What the schedules of contractions on target cuda share. */
#ifndef UL_CONTRACT_CUDA_INTERNAL_H
#define UL_CONTRACT_CUDA_INTERNAL_H

#include "codegen/cuda/contract_cuda.h"
#include "codegen/kernel/contract_internal.h"

enum ul_contract_cuda_form {
    UL_CONTRACT_CUDA_EACH, /* one thread a sum */
    UL_CONTRACT_CUDA_DOT,  /* one warp a sum */
    UL_CONTRACT_CUDA_TILE, /* tiles in shared memory, register tiles */
    UL_CONTRACT_CUDA_MMA   /* the same on tensor cores */
};

/* As struct ul_tile and struct ul_mma of runtime/ul_contract.cuh, or struct ul_mma_bytes of
 * runtime/ul_contract_bytes.cuh; k of bytes counts words of four. */
struct ul_contract_cuda_tile {
    int m, n, k;
    int thread_m, thread_n; /* sums of a thread; of a warp on tensor cores */
    int splits;
    int stages; /* of operands, in shared memory at a time; ul_tile and ul_mma_bytes have two */
};

/* How an operand is read. */
struct ul_contract_cuda_reading {
    bool along_k; /* its neighbours in memory lie along k, not beside it */
    int pack;     /* elements at once; of bytes 1 or a multiple of 4 */
};

struct ul_contract_cuda_plan {
    const struct ul_profile_device *device;
    struct ul_contraction contraction; /* its k in the order in which sums are formed */
    struct ul_contract_plan base;      /* dimensions, and what uses them */
    /* Dimensions as all users together see them. */
    struct ul_contract_uses uses;
    struct ul_contract_dims m, n, k;
    int64_t batch;          /* contractions side by side, under loops around this one */
    const char *coordinate; /* C type of flat coordinates */
    enum ul_contract_cuda_form form;
    bool is_bytes; /* operands of 8 bits, of which four along k are a word; never of EACH */
    int64_t depth; /* k in elements of tiles: words of bytes */
    struct ul_contract_cuda_tile tile;
    const char *kind;     /* MMA: of elements, in runtime/cuda/ul_contract.cuh */
    const char *kinds[2]; /* of elements of a and b where they have 16 bits, else NULL */
    struct ul_contract_cuda_reading a, b;
    int dot_pack;     /* elements at once where a warp has a sum; 0: k does not lie so */
    int dot_sums;     /* DOT: sums of a warp at a time */
    bool put_along_m; /* neighbours of what the epilogue stores lie along m */
    double cycles;    /* of TILE and MMA, as predicted */
    struct ul_contract_grid grid;
};

/* contract_cuda_shape.c */

/* Chooses the schedule; memory for it comes from `arena`. The plan must stay where it is. */
void ul_contract_cuda_plan_init(struct ul_contract_cuda_plan *plan, const struct ul_kernel *kernel,
                                const struct ul_contraction *contraction,
                                const struct ul_profile_device *device, struct ul_arena *arena);

/* Does 32-bit arithmetic do for coordinates, bounds, and indexes but for their bases, as `uses`
 * sees them? */
bool ul_contract_cuda_is_short(const struct ul_contract_plan *plan,
                               const struct ul_contract_uses *uses, const struct ul_kernel *kernel);
/* Contractions side by side, under loops around this one, which is one of the kernel's. */
int64_t ul_contract_cuda_batch(const struct ul_kernel *kernel,
                               const struct ul_contraction *contraction);
/* Into how many parts k is cut, each of them contractions of its own whose sums are added in
 * order: where there are too few tiles for a device. parts is 1 where it is left whole. */
struct ul_contract_cuda_split {
    int64_t partials;
    uint32_t dim; /* of the contraction as the kernel has it */
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

/* An operand at flat coordinates: const auto <function> = [&](<first>, <second>) { ... }; the
 * parameters being two of t_fm, t_fn and t_fk. */
struct ul_contract_cuda_reader {
    const char *function;
    char operand; /* 'a' or 'b' */
    const char *first, *second;
    const char *type;         /* of elements; uint16_t for the bits of what is stored in 16 */
    int pack;                 /* elements at once, a pack of them */
    bool is_stored;           /* elements are given as they are stored */
    bool has_bases;           /* bases are declared already, by ul_contract_cuda_put_bases */
    const char *widened_kind; /* NULL, or of the 16 bits that it gives as f32 */
    bool is_place;            /* gives an ul_source, of elements of 16 bits */
};
void ul_contract_cuda_put_reader(const struct ul_contract_out *out, uint32_t indent,
                                 const struct ul_contract_cuda_reader *reader);
/* Bases of one operand and of its bounds, and whether packs are aligned. */
void ul_contract_cuda_put_bases(const struct ul_contract_out *out, uint32_t indent, char operand,
                                const char *type, int pack);
/* const auto <name> = [&](t_fm, t_fn, t_sum) { the epilogue }; */
void ul_contract_cuda_put_putter(const struct ul_contract_out *out, uint32_t indent,
                                 const char *name);
/* Also t_put_pack(t_fm, t_fn, t_sums) of neighbours along m, or along n, from a multiple of their
 * number on; gives that number, 1 where the epilogue does not take several and nothing is put. */
int ul_contract_cuda_put_packs(const struct ul_contract_out *out, uint32_t indent,
                               const struct ul_contract_cuda_printer *printer, bool along_m);
/* The epilogue of `sum`, the variables of m and n declared. */
void ul_contract_cuda_put_epilogue(const struct ul_contract_out *out, uint32_t indent,
                                   const char *sum);
/* The printer of C's texts for one of ours. */
struct ul_contract_printer ul_contract_cuda_base(const struct ul_contract_cuda_printer *printer);
const char *ul_contract_cuda_truth(bool value);

/* contract_cuda_order.c */

/* Copies the contraction into the plan, its k in an order in which neighbours in memory are
 * neighbours of k. */
void ul_contract_cuda_order(struct ul_contract_cuda_plan *plan, const struct ul_kernel *kernel,
                            const struct ul_contraction *contraction, struct ul_arena *arena);

#endif
