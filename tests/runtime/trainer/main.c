/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include "ul_program.h"

int main(int argc, char **argv)
{
    return ul_program_main(&trainer_model, argc, argv);
}
