/* SPDX-License-Identifier: Apache-2.0 */
/* A program of another project: what it includes and links is what ullage gives away.
 *
 * usage: outside MODEL.onnx FOLDER [RUNTIME]     writes the source of a program into FOLDER
 */
#include "compile/compile.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    struct ul_compile compile;
    if (argc < 3)
        return 2;
    ul_compile_init(&compile);
    compile.options.target = "c";
    compile.options.runtime_dir = argc > 3 ? argv[3] : NULL;
    enum ul_status status = ul_compile_set(&compile, "dim", "N=1");
    if (status == UL_OK)
        status = ul_compile_build(&compile, argv[1]);
    if (status == UL_OK)
        status = ul_compile_plan(&compile);
    if (status == UL_OK)
        status = ul_compile_emit(&compile, argv[2]);
    if (status == UL_OK)
        printf("reserves %llu bytes\n", (unsigned long long)compile.plan.reserved_bytes[0]);
    else
        puts(compile.diag.text);
    ul_compile_done(&compile);
    return status == UL_OK ? 0 : 1;
}
