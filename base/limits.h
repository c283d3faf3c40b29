/* SPDX-License-Identifier: Apache-2.0 */
/* Every fixed limit of the program; crossing one is an error that names it, never truncation. */
#ifndef UL_LIMITS_H
#define UL_LIMITS_H

#define UL_LIMIT_DIAG_BYTES 4096                  /* one message; longer ones end in "..." */
#define UL_LIMIT_PATH_BYTES 4096                  /* a file path with its terminator */
#define UL_LIMIT_STREAM_BYTES ((uint64_t)1 << 31) /* read from a pipe; of protobuf, the largest */
#define UL_LIMIT_RANK 8                           /* dimensions of a tensor */
#define UL_LIMIT_DIM ((int64_t)1 << 40)           /* elements along one dimension */
#define UL_LIMIT_TENSOR_BYTES ((uint64_t)1 << 43)
#define UL_LIMIT_NODES 4000000u   /* nodes of a graph, nested ones included */
#define UL_LIMIT_VALUES 16000000u /* values of a graph */
#define UL_LIMIT_NESTING 64       /* depth of nested graphs and of inlined functions */
#define UL_LIMIT_CALLS 100000u    /* calls of a model's own functions, which are inlined */
#define UL_LIMIT_INLINED_BYTES ((uint64_t)256 << 20) /* of memory that inlining them takes */
#define UL_LIMIT_NODE_INPUTS 4096                    /* inputs or outputs of one node */
#define UL_LIMIT_FOLD_ELEMENTS ((uint64_t)1 << 22)   /* elements of one folded constant */
#define UL_LIMIT_FOLD_WORK ((uint64_t)1 << 28)       /* interpreter steps for one folded node */
#define UL_LIMIT_SEQUENCE 4096u   /* tensors of a sequence, copied by each that is inserted */
#define UL_LIMIT_BANKS 8          /* memories that a buffer is made of */
#define UL_LIMIT_SIZE_POINTS 4096 /* combinations of sizes that one program is for */
#define UL_LIMIT_STREAMS 64       /* that run beside each other in a plan */
#define UL_LIMIT_CASES 4096u      /* plans of one table */

#endif
