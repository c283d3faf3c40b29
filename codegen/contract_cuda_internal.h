/* What the schedules of contractions on target cuda share. */
#ifndef UL_CONTRACT_CUDA_INTERNAL_H
#define UL_CONTRACT_CUDA_INTERNAL_H

#include "codegen/contract_cuda.h"
#include "codegen/contract_internal.h"

enum ul_contract_cuda_form {
    UL_CONTRACT_CUDA_EACH, /* one thread a sum */
    UL_CONTRACT_CUDA_DOT,  /* one warp a sum */
    UL_CONTRACT_CUDA_TILE, /* tiles in shared memory, register tiles */
    UL_CONTRACT_CUDA_MMA   /* the same on tensor cores */
};

/* As struct ul_tile and struct ul_mma of runtime/ul_contract.cuh. */
struct ul_contract_cuda_tile {
    int m, n, k;
    int thread_m, thread_n; /* sums of a thread; of a warp on tensor cores */
    int splits;
};

/* How an operand is read. */
struct ul_contract_cuda_reading {
    bool along_k; /* its neighbours in memory lie along k, not beside it */
    int pack;     /* elements at once */
};

struct ul_contract_cuda_plan {
    struct ul_contraction contraction; /* its k in the order in which sums are formed */
    struct ul_contract_plan base;      /* dimensions, and what uses them */
    /* Dimensions as all users together see them. */
    struct ul_contract_uses uses;
    struct ul_contract_dims m, n, k;
    int64_t batch;          /* contractions side by side, under loops around this one */
    const char *coordinate; /* C type of flat coordinates */
    enum ul_contract_cuda_form form;
    struct ul_contract_cuda_tile tile;
    struct ul_contract_cuda_reading a, b;
    bool put_along_m; /* neighbours of what the epilogue stores lie along m */
    struct ul_contract_grid grid;
};

/* contract_cuda_shape.c */

/* Chooses the schedule; memory for it comes from `arena`. The plan must stay where it is. */
void ul_contract_cuda_plan_init(struct ul_contract_cuda_plan *plan, const struct ul_kernel *kernel,
                                const struct ul_contraction *contraction, struct ul_arena *arena);

/* contract_cuda_order.c */

/* Copies the contraction into the plan, its k in an order in which neighbours in memory are
 * neighbours of k. */
void ul_contract_cuda_order(struct ul_contract_cuda_plan *plan, const struct ul_kernel *kernel,
                            const struct ul_contraction *contraction, struct ul_arena *arena);

#endif
