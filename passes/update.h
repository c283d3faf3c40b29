/* Updates of parameters by an optimizer: nodes of a training graph. */
#ifndef UL_PASSES_UPDATE_H
#define UL_PASSES_UPDATE_H

#include "passes/passes_internal.h"

struct ul_updates {
    struct ul_pass *pass;
    ul_value_id step; /* the input with the numbers of the step */
};

/* update.c */

/* Makes the input that updates read. */
void ul_update_begin(struct ul_updates *updates, struct ul_pass *pass);
/* The parameter and its states overwrite themselves with what the optimizer makes of the gradient:
 * outputs of the model with donors. */
void ul_update_add(struct ul_updates *updates, struct ul_build *build, ul_value_id parameter,
                   ul_value_id gradient);

#endif
