#include "ir/ops/control.h"
#include "ir/infer.h"

enum ul_status ul_infer_control(struct ul_infer *infer)
{
    return ul_infer_unsupported(infer, "its types follow from its blocks, which stand where no "
                                       "blocks are inferred");
}
