/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include <string.h>

enum ul_status ul_diag_set(struct ul_diag *diag, enum ul_status status, const char *format, ...)
{
    UL_ASSERT(status != UL_OK);
    if (diag->status != UL_OK)
        return diag->status;
    diag->status = status;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(diag->text, sizeof diag->text, format, args);
    va_end(args);
    if (length >= (int)sizeof diag->text)
        memcpy(diag->text + sizeof diag->text - 4, "...", 4);
    return status;
}

void ul_diag_prefix(struct ul_diag *diag, const char *prefix)
{
    char old[UL_LIMIT_DIAG_BYTES];
    memcpy(old, diag->text, sizeof old);
    int length = snprintf(diag->text, sizeof diag->text, "%s: %s", prefix, old);
    if (length >= (int)sizeof diag->text)
        memcpy(diag->text + sizeof diag->text - 4, "...", 4);
}
