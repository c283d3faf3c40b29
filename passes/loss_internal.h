/* What the files that add a loss share. */
#ifndef UL_PASSES_LOSS_INTERNAL_H
#define UL_PASSES_LOSS_INTERNAL_H

#include "ir/training.h"
#include "passes/passes_internal.h"

struct ul_loss_job {
    struct ul_pass *pass;
    struct ul_graph *graph;
    struct ul_training *training;
    struct ul_build build;
    ul_value_id correct; /* UL_NONE: labels are no classes */
};

/* loss_pieces.c: cross-entropy of logits [..., classes], which a product makes and nothing else
 * reads, with their targets [rows], in pieces. False: it is not worth it, or not such a product. */
bool ul_loss_add_pieces(struct ul_loss_job *loss, ul_value_id logits, ul_value_id targets,
                        ul_value_id weights, ul_value_id *made);

#endif
