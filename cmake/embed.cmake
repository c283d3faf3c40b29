# SPDX-License-Identifier: Apache-2.0
# Makes a C file of the bytes of another: cmake -DINPUT=page.css -DOUTPUT=page_css.c -DNAME=ul_html_css
# -P embed.cmake
file(READ ${INPUT} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" bytes
       "${bytes}")
file(WRITE ${OUTPUT} "#include \"report/html/html.h\"\n\nconst char ${NAME}[] = {\n${bytes}0};\n")
