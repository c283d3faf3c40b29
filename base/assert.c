/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include <stdlib.h>

void ul_assert_fail(const char *condition, const char *file, int line)
{
    fprintf(stderr,
            "ullage: internal error at %s:%d: %s does not hold.\n"
            "This is a defect of ullage, not of your model: please report it with the command.\n",
            file, line, condition);
    abort();
}
