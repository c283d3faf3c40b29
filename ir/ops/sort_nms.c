/* NonMaxSuppression: how many boxes survive depends on the data, so its output has no size before
 * the run. The row exists to say so. */
#include "ir/ops/hooks.h"

enum ul_status ul_infer_non_max_suppression(struct ul_infer *infer)
{
    return ul_infer_unsupported(infer, "the number of boxes that are selected depends on the data; "
                                       "end the model before it, at its boxes and scores");
}
