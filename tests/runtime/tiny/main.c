/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of the tiny model: all of it is in the runtime. */
#include "model.h"

#include "ul_program.h"

int main(int argc, char **argv)
{
    return ul_program_main(&tiny_model, argc, argv);
}
