/* SPDX-License-Identifier: Apache-2.0 */
/* Tells the caller what is taking time. */
#include "compile/compile_internal.h"

void ul_compile_progress(const struct ul_compile *compile, const char *what)
{
    if (compile->progress != NULL)
        compile->progress(compile->progress_context, what);
}
