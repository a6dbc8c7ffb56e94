"""C as a compiler sees it: comments and white space leave no mark, everything else does."""

from __future__ import annotations

import pytest

from elfkiln.targets.c_text import ELSEWHERE, seen_texts, source_text

SOURCE = """\
#include "gemm_tile.h"   // what a tile is
/* a block
   comment */
#define TURN(x)   ((x) + 1)
#if defined(A) && \\
    defined(B)
int  f(int a)  {  return a/**/+ TURN( a ) ; }
#endif
const char *text = "a // b  /* c";  char c = '"';
"""


def test_a_source_in_its_one_spelling():
    assert source_text(SOURCE) == (
        '#include "gemm_tile.h"\n'
        "#define TURN(x) ((x) + 1)\n"
        "#if defined(A) && defined(B)\n"
        "int f(int a) {\n"
        "return a + TURN( a ) ;\n"
        "}\n"
        "#endif\n"
        'const char *text = "a // b  /* c";\n'
        "char c = '\"';\n"
    )


@pytest.mark.parametrize(
    "edited",
    [
        SOURCE.replace("// what a tile is", ""),
        SOURCE.replace("   comment */", "   comment\n\n of // more */"),
        "\n\n// first\n" + SOURCE,
        SOURCE.replace("int  f(int a)  {  return", "int f(int a)\n{\n\treturn"),
        SOURCE.replace("a/**/+", "a +"),
        SOURCE.replace("\n", "\r\n"),
        SOURCE.rstrip("\n"),
        # A block comment does not end a directive, a line comment that looks like the start of one does nothing.
        SOURCE.replace("#define TURN(x)   ((x) + 1)", "#define TURN(x) /* one\n two */ ((x) + 1) // /*"),
    ],
)
def test_what_no_compiler_sees_leaves_no_mark(edited):
    assert edited != SOURCE
    assert source_text(edited) == source_text(SOURCE)


@pytest.mark.parametrize(
    "edited",
    [
        SOURCE.replace("+ 1)", "+ 2)"),
        SOURCE.replace("a // b", "a  // b"),
        SOURCE.replace("TURN(x)", "TURN (x)"),  # an object-like macro
        SOURCE.replace("TURN( a )", "TURN(a)"),  # a macro may make a string of its argument
        SOURCE.replace("int  f", "intf"),
        SOURCE.replace("#endif\n", ""),
        SOURCE.replace("'\"'", "'\\''"),
        SOURCE.replace("return a/**/+", "return a/**/"),
    ],
)
def test_what_a_compiler_may_see_does(edited):
    assert edited != SOURCE
    assert source_text(edited) != source_text(SOURCE)


@pytest.mark.parametrize("text", ["int  a = __LINE__; // b\n", 'auto  s = R"(\n // no comment\n)";\n'])
def test_a_text_whose_lines_count_is_left_as_it_is(text):
    assert source_text(text) == text


PREPROCESSED = """\
# 1 "kernels/mm.cc"
# 1 "<built-in>" 1
# 1 "<built-in>" 3
#define BUILT_IN 1
# 1 "<command line>" 1
# 1 "<built-in>" 2
# 1 "kernels/mm.cc" 2
# 1 "./kernels/tile.h" 1

# 1 "/opt/zig/lib/include/stdint.h" 1 3
typedef signed char int8_t;
# 4 "./kernels/tile.h" 2
int8_t  tile ( )  ;
# 3 "kernels/mm.cc" 2
#pragma clang loop unroll(full)
int f(){return a+b;}
"""


def test_preprocessed_text_is_split_by_file():
    assert seen_texts(PREPROCESSED, "/opt/zig/lib") == {
        "kernels/mm.cc": (
            "#include <kernels/tile.h>\n#pragma clang loop unroll(full)\nint f ( ) {\nreturn a + b ;\n}\n"
        ),
        "kernels/tile.h": "#include </include/stdint.h>\nint8_t tile ( ) ;\n",
        ELSEWHERE: "/include/stdint.h\ntypedef signed char int8_t;\n",
    }


def test_the_compilers_folder_and_line_numbers_leave_no_mark():
    elsewhere = PREPROCESSED.replace("/opt/zig/lib", "/srv/me/zig/lib").replace('# 4 "./k', '# 9 "./k')
    assert seen_texts(elsewhere, "/srv/me/zig/lib") == seen_texts(PREPROCESSED, "/opt/zig/lib")


def test_where_a_file_is_included_counts():
    moved = PREPROCESSED.replace("#pragma clang loop unroll(full)\n", "").replace(
        '# 1 "./kernels/tile.h" 1\n', '#pragma clang loop unroll(full)\n# 1 "./kernels/tile.h" 1\n'
    )
    before, after = (seen_texts(text, "/opt/zig/lib") for text in (PREPROCESSED, moved))
    assert before["kernels/mm.cc"] != after["kernels/mm.cc"]
    assert before["kernels/tile.h"] == after["kernels/tile.h"]
