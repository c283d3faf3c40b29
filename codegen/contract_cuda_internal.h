/* What the schedules of contractions on target cuda share. */
#ifndef UL_CONTRACT_CUDA_INTERNAL_H
#define UL_CONTRACT_CUDA_INTERNAL_H

#include "codegen/contract_cuda.h"
#include "codegen/contract_internal.h"

enum ul_contract_cuda_form {
    UL_CONTRACT_CUDA_EACH, /* one thread a sum */
    UL_CONTRACT_CUDA_TILE  /* tiles in shared memory, register tiles */
};

struct ul_contract_cuda_plan {
    struct ul_contract_plan base; /* dimensions, and what uses them */
    /* Dimensions as all users together see them. */
    struct ul_contract_uses uses;
    struct ul_contract_dims m, n, k;
    const char *coordinate; /* C type of flat coordinates */
    enum ul_contract_cuda_form form;
    int tile_m, tile_n, tile_k; /* TILE */
    int thread_m, thread_n;     /* sums of a thread */
    bool a_along_k, b_along_k;  /* the operand's neighbours in memory */
    bool put_along_m;           /* those of what the epilogue stores */
    struct ul_contract_grid grid;
};

/* Chooses the schedule; memory for it comes from `arena`. */
void ul_contract_cuda_plan_init(struct ul_contract_cuda_plan *plan, const struct ul_kernel *kernel,
                                const struct ul_contraction *contraction, struct ul_arena *arena);

#endif
