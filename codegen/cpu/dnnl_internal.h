/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that work with oneDNN: dnnl.c asks it, trial.c lets it compute, pieces.c
 * keeps results of trials, made.c makes a call's primitives; kept.c counts what the library
 * keeps for them, and reach.c the code that they run through. */
#ifndef UL_DNNL_INTERNAL_H
#define UL_DNNL_INTERNAL_H

#include "codegen/program/calls_internal.h"

#include "runtime/lib/ul_dnnl_desc.h"

#if DNNL_VERSION_MAJOR != 2
#error "ullage is made for oneDNN 2 (Debian: libdnnl-dev)"
#endif

/* From the OpenMP to which oneDNN is linked; its header needs a compiler flag that nothing else
 * needs. */
void omp_set_num_threads(int count);

struct answer;
struct ul_dnnl_reach;
struct ul_dnnl_known;
struct ul_pieces;

enum { UL_DNNL_TABLE = 1024 };

struct ul_dnnl {
    const char *isa;   /* of this machine */
    const char *march; /* as a C compiler takes it */
    struct ul_arena *arena;
    dnnl_engine_t engine;
    const char *asked_isa; /* NULL: this machine's */
    uint32_t thread_count;
    struct answer *table[UL_DNNL_TABLE];
    struct ul_pieces *pieces; /* NULL: no piece was asked about */
    struct ul_dnnl_known *known[UL_DNNL_TABLE];
    float *scales; /* scale_count of them, which replace a call's own in questions */
    int64_t scale_count;
};

/* dnnl.c */

/* Visits what the library offers for the call, in its order; `visit` returns true to stop, and that
 * is the result. `pack`: the library may choose the layout of the weights. */
typedef bool ul_dnnl_visit(void *context, const_dnnl_primitive_desc_t offer);
bool ul_dnnl_each_offer(struct ul_dnnl *dnnl, const struct ul_call *call, bool pack,
                        ul_dnnl_visit *visit, void *context);
const char *ul_dnnl_offer_name(const_dnnl_primitive_desc_t offer);
/* Completes the call like ul_dnnl_answer, without a cache. `only` names the implementation that it
 * must be; NULL: the first that a plan can hold. */
bool ul_dnnl_query(struct ul_dnnl *dnnl, struct ul_call *call, uint64_t product_count, bool pack,
                   const char *only);
/* As many scales as the call has, with other values: they are known only when the program runs. */
const float *ul_dnnl_scales(struct ul_dnnl *dnnl, const struct ul_call *call);
/* The same call without its own scales, for tables. */
struct ul_call ul_dnnl_without_scales(const struct ul_call *call);
/* A hash of all bytes of the call, for tables. */
uint32_t ul_dnnl_hash(const struct ul_call *call);

/* dnnl.c: for struct ul_target_library; `dnnl` is a struct ul_dnnl. Answers are cached. */
bool ul_dnnl_answer(void *dnnl, struct ul_group_call *call, bool pack);

/* made.c */

/* The primitives that a program makes for a call: its own, then copies before and after it. */
enum { UL_DNNL_PRIMITIVES = 5 };
struct ul_dnnl_made {
    struct ul_dnnl *dnnl;
    const struct ul_call *call;
    uint32_t count;
    dnnl_primitive_t primitives[UL_DNNL_PRIMITIVES];
    bool good;
};
/* Fills in everything except the library and the call. */
void ul_dnnl_make(struct ul_dnnl_made *made);
void ul_dnnl_unmake(struct ul_dnnl_made *made);

/* What was counted for a call. */
struct ul_dnnl_known {
    struct ul_call call; /* without addresses of equal data */
    const char *implementation;
    uint64_t kept_bytes;         /* 0: not counted yet */
    struct ul_dnnl_reach *reach; /* NULL: not counted yet */
    struct ul_dnnl_known *next;  /* with the same hash */
};
/* Finds what is known of the call, or makes a place for it. Equal calls share one, and it is
 * kept. */
struct ul_dnnl_known *ul_dnnl_know(struct ul_dnnl *dnnl, const struct ul_call *call);

/* kept.c and reach.c: for struct ul_target_library, with a struct ul_dnnl. Answers are
 * cached. */
uint64_t ul_dnnl_kept_bytes(void *dnnl, const struct ul_call *call);
uint64_t ul_dnnl_code_bytes(void *dnnl, const struct ul_library_use *use);
uint64_t ul_dnnl_runtime_bytes(void *dnnl, const struct ul_library_use *use);
/* Bytes of the library's code, of what a program has resident in whole windows of pages, that the
 * calls run through. 0: it cannot be counted here. */
uint64_t ul_dnnl_reached_bytes(struct ul_dnnl *dnnl, const struct ul_call *const *calls,
                               uint32_t count);

/* pieces.c */

/* For struct ul_target_library; `dnnl` is a struct ul_dnnl. */
bool ul_piece_answer(void *dnnl, const struct ul_piece *piece, struct ul_group_call *call);
/* Forgets which pieces have been tried. */
void ul_pieces_restart(struct ul_dnnl *dnnl);

/* trial.c */

/* A call that may compute a piece of another one: some rows along an axis of dst. All other tensors
 * have the same axis, except weights, which have it only as the axis of a batch. */
struct ul_piece_trial {
    const struct ul_call *unsplit, *piece;
    uint32_t axis;
};

/* Computes the piece on numbers that are the same in every row; returns a hash of the bits of each
 * row of dst. False: it cannot be run. */
bool ul_trial_run(struct ul_dnnl *dnnl, const struct ul_piece_trial *trial, uint64_t *hashes);
/* The bytes that a run takes. */
uint64_t ul_trial_bytes(const struct ul_call *call);

#endif
