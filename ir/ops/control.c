#include "ir/infer.h"
#include "ir/ops/hooks.h"

enum ul_status ul_infer_control(struct ul_infer *infer)
{
    return ul_infer_unsupported(infer, "its types follow from its blocks, which stand where no "
                                       "blocks are inferred");
}
